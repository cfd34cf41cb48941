// of a chart that is drawn, by its id: what its axes show, and of what
id => {
  const chart = charts.get(id), {bands, series, scales: {x, y}} = chart.drawn;
  const curves = series.filter(s => s._paths && s.width > 1.2).length, raw = chart.shown.filter(s => s.front).length;
  return {x: [x.min, x.max], y: [y.min, y.max], log: y.distr === 3, bands: bands.length, curves, raw};
}

// of a study's curves: the scale, whether base and row are whole, where the row ends, raw and as a difference
() => {
  const {data, shown, drawn: {scales}} = charts.get('chart-dev'), last = s => s.points.at(-1);
  const named = name => data.series.find(s => s.name === name), to = named(data.to);
  const row = shown.find(s => s.name !== data.to), own = named(row.name);
  return {distr: scales.y.distr, whole: [to, own].map(s => last(s)[0] === s.steps), end: last(row),
    raw: last(own)[1] / last(to)[1], names: shown.map(s => s.name)};
}

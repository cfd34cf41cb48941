// of every chart: whether it is the one that was there, its part, its cursor, its curves, the focus, its points
() => [...charts].map(([id, chart]) => [id, chart.drawn.mine === 1, chart.zoom, chart.at, chart.shown.length,
  chart.plot === document.activeElement, chart.data.series[0].points.length])

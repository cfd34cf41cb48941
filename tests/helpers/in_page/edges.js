// of a chart, by its id: whether its lines go on to the left and to the right edge of the plot
id => {
  const {ctx, bbox: {left, top, width, height}} = charts.get(id).drawn;
  const {data} = ctx.getImageData(left, top, width, height), rows = [...Array(height).keys()];
  return [2, width - 3].map(x => rows.some(y => data[4 * (y * width + x) + 3] > 200));
}

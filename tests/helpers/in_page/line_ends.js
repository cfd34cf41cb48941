// of every chart of curves: how many are named at their ends, how far the widest name leaves it, how near two names are
() => [...document.querySelectorAll('#section-curves svg:not(details *)')]
  .filter(e => e.clientWidth).map(svg => {
  const box = svg.getBoundingClientRect(), ends = [];
  for (const e of svg.querySelectorAll('text.end')) ends.push(e.getBoundingClientRect());
  ends.sort((a, b) => a.top - b.top);
  const near = ends.slice(1).map((e, i) => (e.bottom - ends[i].bottom) / e.height);
  const named = svg.querySelectorAll('g:has(> text.end)').length;
  return [named, Math.max(...ends.map(e => e.right - box.right)), Math.min(...near)];
})

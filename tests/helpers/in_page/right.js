// of queries: how far to the right what each finds reaches, 0 where it is not shown
queries => queries.map(query => {
  const e = document.querySelector(query);
  return e.getClientRects().length ? e.getBoundingClientRect().right : 0;
})

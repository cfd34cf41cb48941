// Tables whose heads sort them; a third click restores the order in which they came. Of reports and the dashboard.
const NEXT = {none: 'ascending', ascending: 'descending', descending: 'none'};
let arrived = 0;

function sortTable(table) {
  const th = one('th[aria-sort=ascending], th[aria-sort=descending]', table), body = table.tBodies[0];
  const rows = [...body.rows];
  rows.forEach(row => { row.dataset.n ??= arrived++; });
  let order = (a, b) => a.dataset.n - b.dataset.n;
  if (th) {
    const i = th.cellIndex, sign = th.getAttribute('aria-sort') === 'ascending' ? 1 : -1;
    order = (a, b) => {
      const x = a.cells[i]?.dataset.v ?? '', y = b.cells[i]?.dataset.v ?? '';
      if (x === '' || y === '') return (x === '') - (y === '');
      return sign * (isNaN(x) || isNaN(y) ? x.localeCompare(y, undefined, {numeric: true}) : x - y);
    };
  }
  const sorted = [...rows].sort(order);
  if (sorted.some((row, i) => row !== rows[i])) body.append(...sorted);
}

document.addEventListener('click', event => {
  const button = event.target.closest(':is(.sortable, #table) thead button');
  if (!button) return;
  const th = button.closest('th'), next = NEXT[th.getAttribute('aria-sort')];
  all('th[aria-sort]', th.parentNode).forEach(other => other.setAttribute('aria-sort', 'none'));
  th.setAttribute('aria-sort', next);
  sortTable(th.closest('table'));
});

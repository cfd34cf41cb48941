// of a table: by how much it is wider than its region, and the cells that reach into the next one
table => {
  const wide = [...table.rows].flatMap(row => [...row.cells]).filter(cell => {
    const text = document.createRange();
    text.selectNodeContents(cell);
    const clipped = cell.querySelector('.words') || getComputedStyle(cell).overflow === 'hidden';
    return cell.offsetParent && !clipped && text.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1;
  });
  return [table.parentElement.scrollWidth - table.parentElement.clientWidth, wide.map(cell => cell.innerText)];
}

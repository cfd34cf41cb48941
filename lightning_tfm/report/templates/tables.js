// Tables: filtered, their columns chosen, copied; sort.js sorts them.
{
  const filtered = rows => {
    const text = one('#find'), verdict = one('#verdict');
    const filter = () => {
      let shown = 0;
      rows.forEach(row => {
        const hit = row.textContent.toLowerCase().includes(text.value.toLowerCase())
          && (!verdict.value || row.dataset.verdicts.split('|').includes(verdict.value))
          && !row.dataset.brushed;
        row.hidden = !hit;
        shown += hit;
      });
      one('#count').textContent = shown + ' of ' + rows.length + ' rows';
    };
    text.addEventListener('input', filter);
    verdict.addEventListener('change', filter);
    document.addEventListener('brushed', filter);
  };

  // the choice of columns, kept by the browser for all pages of this kind
  const chooser = one('.chooser');
  if (chooser) {
    const boxes = all('input', chooser), store = 'columns of ' + document.body.dataset.kind;
    const kept = () => {
      try {
        return JSON.parse(localStorage.getItem(store)) || {};
      } catch (error) {
        return {};
      }
    };
    const keep = found => {
      try {
        localStorage.setItem(store, JSON.stringify(found));
      } catch (error) {
        say('This browser keeps no choice of columns');
      }
    };
    const start = Object.fromEntries(boxes.map(box => [box.id, box.checked]));
    const found = kept();
    boxes.forEach(box => {
      if (box.id in found) box.checked = found[box.id];
      box.addEventListener('change', () => keep({...kept(), [box.id]: box.checked}));
    });
    const onclick = () => {
      boxes.forEach(box => box.checked = start[box.id]);
      keep({});
    };
    chooser.append(made('button', {type: 'button', className: 'plain', textContent: 'as at first', onclick}));
  }

  const words = cell => {
    const parts = all('small', cell).map(small => small.textContent.trim());
    const copy = cell.cloneNode(true);
    all('small', copy).forEach(small => small.remove());
    return [copy.textContent, ...parts].join(' ').replace(/\s+/g, ' ').trim();
  };
  const shown = table => all('tr', table).filter(visible).map(row => [...row.children].filter(visible));
  const tsv = table => shown(table).map(row => row.map(words).join('\t')).join('\n') + '\n';

  const escapes = {'\\': '\\textbackslash{}', '~': '\\textasciitilde{}', '^': '\\textasciicircum{}', '<': '$<$',
    '>': '$>$', '|': '\\textbar{}', '±': '$\\pm$', '−': '$-$', '×': '$\\times$', 'Δ': '$\\Delta$', '–': '--', '≤': '$\\le$',
    '…': '\\dots{}', '→': '$\\to$', '÷': '$\\div$', '\u00a0': '~', '“': '``', '”': "''"};
  '&%$#_{}'.split('').forEach(c => escapes[c] = '\\' + c);
  const latex = table => {
    const rows = shown(table);
    const line = row => row.map(cell => [...words(cell)].map(c => escapes[c] || c).join('')).join(' & ') + ' \\\\';
    const sides = (rows[1] || rows[0]).map(cell => getComputedStyle(cell).textAlign === 'left' ? 'l' : 'r').join('');
    const [head, ...body] = rows.map(line);
    return ['% needs \\usepackage{booktabs}', '\\begin{tabular}{@{}' + sides + '@{}}', '\\toprule', head, '\\midrule',
      ...body, '\\bottomrule', '\\end{tabular}', ''].join('\n');
  };
  const copied = async (text, what) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch (error) {  // a page from a file may not have it
      const area = made('textarea', {value: text, readOnly: true});
      document.body.append(area);
      area.select();
      document.execCommand('copy');
      area.remove();
    }
    say('Copied: ' + what);
  };
  const tools = (...buttons) => made('div', {className: 'tools table-tools'}, ...buttons.map(([textContent, ariaLabel, onclick]) =>
    made('button', {type: 'button', textContent, ariaLabel, onclick})));
  all('main table').forEach((table, i) => {
    const place = table.closest('.scroll') || table;
    const name = (table.caption || place).getAttribute('aria-label') || 'table ' + (i + 1);
    place.after(tools(
      ['copy TSV', 'Copy as TSV: ' + name, () => copied(tsv(table), 'the table as TSV, as it is shown')],
      ['copy LaTeX', 'Copy as LaTeX: ' + name, () => copied(latex(table), 'the table as LaTeX, as it is shown')],
    ));
  });
  all('.publish pre').forEach(pre => pre.before(tools(
    ['copy', 'Copy the whole table as LaTeX', () => copied(pre.textContent, 'the whole table as LaTeX')])));

  const rows = all('#table tbody tr');
  if (rows.length) filtered(rows);
}

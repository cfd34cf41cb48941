// The dashboard's script: asks for news, draws charts, sorts, filters. Without it the tables are there as they were sent.
const one = (query, inside = document) => inside.querySelector(query);
const all = (query, inside = document) => [...inside.querySelectorAll(query)];

// --- times ---

function ago(seconds) {
  if (seconds < 5) return 'now';
  for (const [size, word] of [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']])
    if (seconds >= size) return Math.floor(seconds / size) + ' ' + word + ' ago';
}

function times(inside = document) {
  const now = Date.now() / 1000;
  all('time[data-t]', inside).forEach(time => {
    const age = now - time.dataset.t;
    if (!time.title) time.title = time.textContent;
    const said = age < 7 * 86400 ? ago(Math.max(0, age)) : time.title.slice(0, 10);
    if (time.textContent !== said) time.textContent = said;
  });
}

// --- tables ---

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
  const button = event.target.closest('.sortable thead button');
  if (!button) return;
  const th = button.closest('th'), next = NEXT[th.getAttribute('aria-sort')];
  all('th[aria-sort]', th.parentNode).forEach(other => other.setAttribute('aria-sort', 'none'));
  th.setAttribute('aria-sort', next);
  if (th.closest('table') === table) arrange();
  else sortTable(th.closest('table'));
  remember();
});

// --- the runs: all of them as data, and as rows those that are looked at ---

const CHUNK = 100, MOST = +document.body.dataset.most;
const runs = new Map(), table = one('#table-runs');
let listed = [], most = CHUNK, drawing = 0;
let chosen = null, own = [], asking = 0;

function take(columns) {
  const states = all('select[data-key=state] option').slice(1).map(option => option.value);
  columns.name.forEach((name, i) => {
    const old = runs.get(name), run = {row: old?.row ?? document.getElementById('run-' + name), n: old?.n ?? -(++arrived), stale: Boolean(old)};
    for (const [key, values] of Object.entries(columns)) run[key] = values[i];
    run.word = states[run.state];
    run.text = [run.said, run.study, run.word, run.words].join(' ').toLowerCase();
    runs.set(name, run);
  });
}

function arrange(from) {
  if (!table) return;
  if (!from) table.closest('.scroll').scrollTop = 0;
  const words = one('.find').value.toLowerCase().split(/\s+/).filter(Boolean), by = Object.fromEntries(all('select.by').map(s => [s.dataset.key, s.value]));
  listed = [...runs.values()].filter(run => words.every(word => run.text.includes(word))
    && (!by.state || run.word === by.state) && (!by.study || run.study.split('|').includes(by.study)) && (!chosen || chosen.has(run.name)));
  const th = one('th[aria-sort=ascending], th[aria-sort=descending]', table), key = th?.dataset.key, mine = th?.className === 'own';
  const sign = th?.getAttribute('aria-sort') === 'descending' ? -1 : 1, none = value => value === undefined || value === null || value === '';
  const compare = new Intl.Collator(undefined, {numeric: true}).compare;
  listed.sort((a, b) => {
    const x = mine ? a.own?.[key] : a[key], y = mine ? b.own?.[key] : b[key];
    if (!key || x === y) return a.n - b.n;
    if (none(x) || none(y)) return none(x) - none(y);
    return sign * (isNaN(x) || isNaN(y) ? compare(x, y) : x - y);
  });
  const shown = listed.length, whole = runs.size;
  one('.count').textContent = shown === whole ? whole + (whole === 1 ? ' run' : ' runs') : shown + ' of ' + whole + ' runs';
  most = from ?? CHUNK;
  draw();
}

// a condition, and columns of further fields: the server says which runs it finds, and what they hold
async function ask() {
  const where = one('.where').value.trim(), names = one('.columns').value.split(',').map(name => name.trim()).filter(Boolean), turn = ++asking;
  const wrong = one('.wrong');
  let found = {columns: {}};
  if (where || names.length) {
    const answer = await fetch('/query?' + new URLSearchParams([['where', where], ...names.map(name => ['column', name])]), {cache: 'no-store'});
    if (turn !== asking) return;
    wrong.hidden = answer.ok;
    if (!answer.ok) { wrong.textContent = await answer.text(); return; }
    found = await answer.json();
  }
  wrong.hidden = true;
  chosen = where ? new Set(found.name) : null;
  const columns = Object.entries(found.columns);
  if (columns.map(([name]) => name).join() !== own.join()) {
    own = columns.map(([name]) => name);
    all('th.own', table).forEach(th => th.remove());
    one('thead tr', table).append(...own.map(name => {
      const th = document.createElement('th'), button = document.createElement('button');
      Object.assign(th, {className: 'own', scope: 'col'}).setAttribute('aria-sort', 'none');
      th.dataset.key = name;
      Object.assign(button, {type: 'button', textContent: name});
      th.append(button);
      return th;
    }));
  }
  found.name?.forEach((name, i) => {
    const run = runs.get(name);
    if (run) run.own = Object.fromEntries(columns.map(([key, values]) => [key, values[i]]));
  });
  arrange(most);
}

function dress(run) {
  all('td.own', run.row).forEach(cell => cell.remove());
  run.row.append(...own.map(name => {
    const cell = document.createElement('td'), value = run.own?.[name] ?? '';
    cell.className = 'own';
    cell.dataset.v = value;
    cell.textContent = value === '' ? '–' : typeof value === 'number' && !Number.isInteger(value) ? short(value) : value;
    return cell;
  }));
}

async function draw() {
  const turn = ++drawing, wanted = listed.slice(0, most), body = table.tBodies[0];
  const lacking = wanted.filter(run => !run.row || run.stale);
  for (let i = 0; i < lacking.length; i += CHUNK) {
    const some = lacking.slice(i, i + CHUNK), answer = await fetch('/rows?' + new URLSearchParams(some.map(run => ['run', run.name])), {cache: 'no-store'});
    if (!answer.ok || turn !== drawing) return;
    const html = await answer.json(), made = document.createElement('template');
    for (const run of some) if (html[run.name]) {
      made.innerHTML = html[run.name];
      const old = run.row, focused = old?.contains(document.activeElement) && document.activeElement.tagName;
      run.row = made.content.firstElementChild;
      run.stale = false;
      if (old && one('input', old).checked) one('input', run.row).checked = true;
      if (old?.isConnected) old.replaceWith(run.row);
      if (focused) one(focused, run.row)?.focus();
    }
  }
  if (turn !== drawing) return;
  const rows = wanted.map(run => run.row).filter(Boolean), here = new Set(rows);
  rows.forEach(row => { row.hidden = false; });
  wanted.forEach(run => { if (run.row) dress(run); });
  // ticked ones are compared wherever they are
  const ticked = all('input:checked', body).map(box => box.closest('tr')).filter(row => !here.has(row));
  ticked.forEach(row => { row.hidden = true; });
  const now = [...rows, ...ticked], focus = body.contains(document.activeElement) && document.activeElement;
  if (now.length !== body.rows.length || now.some((row, i) => row !== body.rows[i])) body.replaceChildren(...now);
  if (focus) focus.focus();
  one('.more').textContent = listed.length > rows.length ? 'more as you scroll' : '';
  times(body);
}

if (table) new IntersectionObserver(seen => {
  if (seen.some(entry => entry.isIntersecting) && most < listed.length) { most += CHUNK; draw(); }
}, {root: table.closest('.scroll'), rootMargin: '400px'}).observe(one('.more'));

function remember() {
  if (!table) return;
  const found = new URLSearchParams(), th = one('th[aria-sort=ascending], th[aria-sort=descending]', table);
  for (const key of ['find', 'where', 'columns']) if (one('.' + key).value) found.set(key, one('.' + key).value);
  all('select.by').forEach(s => { if (s.value) found.set(s.dataset.key, s.value); });
  if (th) found.set('sort', th.textContent.trim() + (th.getAttribute('aria-sort') === 'descending' ? ' down' : ' up'));
  history.replaceState(null, '', found.size ? '?' + found : location.pathname);
}

function recall() {
  if (!table) return;
  take(JSON.parse(one('#index').textContent));
  [...runs.values()].forEach((run, i) => { run.n = i; });
  const asked = new URLSearchParams(location.search), [, name, way] = /^(.*) (up|down)$/.exec(asked.get('sort') ?? '') ?? [];
  for (const key of ['find', 'where', 'columns']) one('.' + key).value = asked.get(key) ?? '';
  all('select.by').forEach(s => { s.value = asked.get(s.dataset.key) ?? ''; });
  all('thead th', table).forEach(th => {
    if (name && th.textContent.trim() === name) th.setAttribute('aria-sort', way === 'up' ? 'ascending' : 'descending');
  });
  one('.where').value || one('.columns').value ? ask() : arrange();
}

// the runs that the table shows, as a condition
function condition() {
  const ticked = all('#table-runs input:checked').map(box => box.value), quoted = text => "'" + text.replaceAll("'", "''") + "'";
  if (ticked.length) return 'run in (' + ticked.map(quoted).join(', ') + ')';
  const by = all('select.by').filter(s => s.value).map(s => s.dataset.key + ' = ' + quoted(s.value)), where = one('.where').value.trim();
  return [...(where ? [by.length ? '(' + where + ')' : where] : []), ...by].join(' and ');
}

// the studies that have these words
function within() {
  const words = one('.within')?.value.toLowerCase().split(/\s+/).filter(Boolean) ?? [], rows = all('#table-studies tbody tr');
  rows.forEach(row => { row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word)); });
  if (words.length) one('.studies').textContent = rows.filter(row => !row.hidden).length + ' of ' + rows.length;
}

function ready(form) {
  const count = all('input[type=checkbox]:checked', form).length, button = one('.above button:not(.curves)', form);
  button.disabled = count < 2 || count > MOST;
  button.classList.toggle('ready', !button.disabled);
  button.textContent = count > MOST ? 'Compare at most ' + MOST : count ? 'Compare ' + count : 'Compare';
}

// --- charts ---

const charts = new Map();
all('figure.chart').forEach(figure => charts.set(figure.id, new Chart(figure)));
const redraw = () => charts.forEach(chart => chart.draw());
one('.smooth')?.addEventListener('input', event => {
  one('.smoothing output').textContent = (+event.target.value).toFixed(2);
  redraw();
});
one('.across')?.addEventListener('change', () => charts.forEach(chart => { chart.zoom = null; chart.draw(); }));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

// --- news ---

function place(id, html) {
  const part = one('#part-' + id);
  if (!part || part.dataset.html === html) return;
  part.dataset.html = html;
  const open = new Map(all('details[id]', part).map(d => [d.id, d.open])), sorts = all('th[aria-sort]', part).map(th => th.getAttribute('aria-sort'));
  const focus = part.contains(document.activeElement) ? document.activeElement : null;
  const where = focus && all('a, button, summary, [tabindex]', part).indexOf(focus), scroll = all('.scroll', part).map(s => [s.scrollLeft, s.scrollTop]);
  part.innerHTML = html;
  all('details[id]', part).forEach(d => { if (open.has(d.id)) d.open = open.get(d.id); });
  all('th[aria-sort]', part).forEach((th, i) => th.setAttribute('aria-sort', sorts[i] ?? 'none'));
  all('.scroll', part).forEach((s, i) => { if (scroll[i]) [s.scrollLeft, s.scrollTop] = scroll[i]; });
  all('table.sortable', part).forEach(sortTable);
  if (focus) all('a, button, summary, [tabindex]', part)[where]?.focus();
  if (one('.same')?.checked) all('.alike').forEach(row => { row.hidden = false; });
}

function rows(news) {
  const made = document.createElement('template');
  for (const [id, fresh] of Object.entries(news)) {
    const body = one('#' + id + ' tbody');
    if (!body) return location.reload();
    if (fresh.index) {
      take(fresh.index);
      if (runs.size !== fresh.count) return location.reload();
      if (fresh.index.name.length) chosen || own.length ? ask() : arrange(most);
      continue;
    }
    made.innerHTML = fresh.rows.join('');
    for (const row of [...made.content.children]) {
      const old = document.getElementById(row.id);
      if (!old) { row.dataset.n = -(++arrived); body.prepend(row); continue; }
      row.dataset.n = old.dataset.n ??= arrived++;
      const checked = one('input', old)?.checked, focused = old.contains(document.activeElement) && document.activeElement.tagName;
      old.replaceWith(row);
      if (checked) one('input', row).checked = true;
      if (focused) one(focused, row)?.focus();
    }
    if (body.rows.length !== fresh.count) return location.reload();
    within();
    if (fresh.rows.length && one('th[aria-sort=ascending], th[aria-sort=descending]', body.parentNode)) sortTable(body.parentNode);
  }
}

const body = document.body, said = one('#live');
let tag = body.dataset.tag, version = tag, pause = 2000, wrong = 0;

// --- the main figure of a study, whose tests take seconds ---

const SECONDS = 20;
let forestTag = '', asked = -Infinity;
async function forest() {
  const place = one('#forest');
  if (!place || performance.now() - asked < 1000 * SECONDS) return;
  asked = performance.now();
  const answer = await fetch(place.dataset.of, {headers: {'If-None-Match': '"' + forestTag + '"'}, cache: 'no-store'});
  if (answer.status !== 200) return;
  forestTag = (answer.headers.get('ETag') || '').replaceAll('"', '');
  place.innerHTML = await answer.text();
}
forest();

async function news() {
  if (!document.hidden && body.dataset.live) try {
    const join = body.dataset.live.includes('?') ? '&' : '?';
    const answer = await fetch(body.dataset.live + join + 'since=' + encodeURIComponent(version), {headers: {'If-None-Match': '"' + tag + '"'}, cache: 'no-store'});
    if (answer.status === 200) {
      const found = await answer.json();
      for (const [id, html] of Object.entries(found.parts ?? {})) place(id, html);
      for (const [id, data] of Object.entries(found.charts ?? {})) charts.get(id)?.show(data);
      if (found.rows) rows(found.rows);
      tag = version = found.tag;
      pause = found.pause ?? 2000;
      forest();
    } else if (answer.status === 404) {
      said.textContent = 'no longer there';
      said.className = 'bad';
      return;
    } else if (answer.status !== 304) throw new Error(answer.status);
    wrong = 0;
    const word = pause > 2000 ? 'up to date' : 'live';
    if (said.textContent !== word) said.textContent = word;
    said.className = 'soft';
  } catch (error) {
    wrong += 1;
    if (wrong > 1) { said.textContent = 'the server does not answer'; said.className = 'bad'; }
  }
  times();
  setTimeout(news, wrong ? 5000 : pause);
}

document.addEventListener('visibilitychange', () => { if (!document.hidden) times(); });
let soon;
document.addEventListener('input', event => {
  if (table && event.target.matches('.where, .columns')) {
    clearTimeout(soon);
    soon = setTimeout(() => { ask(); remember(); }, 250);
  }
  if (event.target.matches('.find, select.by')) { arrange(); remember(); }
  if (event.target.matches('.within')) within();
});
document.addEventListener('change', event => {
  const form = event.target.closest('form.compare');
  if (form && event.target.type === 'checkbox') ready(form);
  if (event.target.matches('.same')) all('.alike').forEach(row => { row.hidden = !event.target.checked; });
});
// a row's name opens what is known of it, over the page
document.addEventListener('click', async event => {
  const link = event.target.closest('a.panel');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const panel = one('dialog') ?? document.body.appendChild(document.createElement('dialog')), close = document.createElement('button');
  const answer = await fetch(link.href), found = new DOMParser().parseFromString(await answer.text(), 'text/html');
  Object.assign(close, {type: 'button', className: 'plain close', textContent: 'Close'}).addEventListener('click', () => panel.close());
  panel.setAttribute('aria-label', link.textContent);
  panel.replaceChildren(close, ...one('main', found).childNodes);
  panel.showModal();
});
document.addEventListener('click', async event => {
  const button = event.target.closest('.copies');
  if (!button) return;
  await navigator.clipboard.writeText(button.previousElementSibling.textContent);
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
});
one('button.curves')?.addEventListener('click', () => { location.href = '/curves?' + new URLSearchParams({where: condition()}); });

// a comparison may take seconds, until whose answer this page stays
document.addEventListener('submit', event => {
  if (event.target.matches('form.compare')) event.submitter.textContent = 'Comparing ' + all('input[type=checkbox]:checked', event.target).length + '…';
});
addEventListener('pageshow', () => all('form.compare').forEach(ready));
recall();
times();
setTimeout(news, 1000);

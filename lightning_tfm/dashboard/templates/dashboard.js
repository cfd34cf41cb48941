// The dashboard's script: asks for news, draws charts, sorts, filters. Without it the tables are there as they were sent.
'use strict';
const one = (query, inside = document) => inside.querySelector(query);
const all = (query, inside = document) => [...inside.querySelectorAll(query)];
const short = value => {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1).replace('.0e', 'e').replace('e+', 'e');
  return size >= 1000 && value % 100 === 0 ? value / 1000 + 'K' : String(+value.toPrecision(4));
};

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

function ready(form) {
  const count = all('input[type=checkbox]:checked', form).length, button = one('.above button:not(.curves)', form);
  button.disabled = count < 2 || count > MOST;
  button.classList.toggle('ready', !button.disabled);
  button.textContent = count > MOST ? 'Compare at most ' + MOST : count ? 'Compare ' + count : 'Compare';
}

// --- charts ---

const SVG = 'http://www.w3.org/2000/svg';
function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function ticks(low, high, log, count) {
  const tens = [];
  if (log) for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) tens.push(10 ** e);
  for (const steps of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]]) {
    const found = tens.flatMap(ten => steps.map(m => +(m * ten).toPrecision(6))).filter(v => v >= low && v <= high);
    if (found.length >= 4) return found.length <= 12 ? found : found.filter((v, i) => i % 2 === 0);
  }
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(m => m * power >= raw * .999) * power, first = Math.ceil(low / step - 1e-9);
  const last = Math.min(Math.floor(high / step + 1e-9), first + 50);
  return Array.from({length: Math.max(0, last - first + 1)}, (_, i) => +((first + i) * step).toPrecision(12));
}

function smoothed(points, weight) {
  let mean = 0, share = 0;
  return points.map(([x, y]) => {
    mean = mean * weight + (1 - weight) * y;
    share = share * weight + (1 - weight);
    return [x, mean / share];
  });
}

class Chart {
  constructor(figure) {
    this.figure = figure;
    this.plot = one('.plot', figure);
    this.readout = one('.readout', figure);
    this.pick = one('.pick', figure);
    this.log = one('input.logs', figure);
    this.toggles = one('.toggles', figure);
    this.whole = one('.whole', figure);
    this.at = this.zoom = this.from = null;
    this.hidden = new Set();
    this.show(JSON.parse(one('script[type="application/json"]', figure).textContent));
    this.pick?.addEventListener('change', () => this.draw());
    this.log?.addEventListener('change', () => this.draw());
    this.plot.addEventListener('pointermove', event => this.point(event));
    this.plot.addEventListener('pointerleave', () => { this.at = this.near = this.from = null; this.draw(); });
    this.plot.addEventListener('pointerdown', event => { this.from = this.across(event); });
    this.plot.addEventListener('pointerup', event => this.drop(event));
    this.whole.addEventListener('click', () => this.within(null));
    this.plot.addEventListener('keydown', event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  show(data) {
    this.data = data;
    if (this.pick) {
      const names = data.series.map(s => s.name), before = this.pick.value;
      if (names.join('|') !== this.names) {
        this.names = names.join('|');
        this.pick.replaceChildren(new Option('all', ''), ...names.map(name => new Option(name, name)));
        this.pick.value = names.includes(before) ? before : '';
      }
    }
    if (this.toggles && data.series.map(s => s.name).join('|') !== this.named) {
      this.named = data.series.map(s => s.name).join('|');
      this.toggles.replaceChildren(...data.series.map(s => this.toggle(s)));
    }
    this.draw();
  }

  // an entry of the key, which hides its curve and shows it again
  toggle(series) {
    const entry = document.createElement('li'), button = document.createElement('button'), mark = document.createElement('span');
    mark.className = 'g' + series.colour;
    mark.textContent = ['━ ', '╍ ', '┅ ', '┉ '][series.dash ?? 0];
    mark.setAttribute('aria-hidden', 'true');
    const name = document.createElement('bdi');
    name.textContent = series.name;
    button.type = 'button';
    button.setAttribute('aria-pressed', String(!this.hidden.has(series.name)));
    button.append(mark, name);
    button.addEventListener('click', () => {
      this.hidden.has(series.name) ? this.hidden.delete(series.name) : this.hidden.add(series.name);
      button.setAttribute('aria-pressed', String(!this.hidden.has(series.name)));
      this.draw();
    });
    entry.append(button);
    return entry;
  }

  prepared() {
    const weight = this.data.dots ? 0 : +(one('.smooth')?.value ?? 0), axis = one('.across')?.value ?? 'step';
    return this.data.series.filter(s => !this.hidden.has(s.name) && (axis === 'step' || s.across?.[axis])).map(s => {
      const x = axis === 'step' ? v => v : v => at(s.across[axis], v), inside = p => !this.zoom || p[0] >= this.zoom[0] && p[0] <= this.zoom[1];
      const raw = s.points.map(([v, y]) => [x(v), y]), band = (s.band ?? []).map(([v, low, high]) => [x(v), low, high]).filter(inside);
      return {...s, band, raw: weight ? raw.filter(inside) : null, points: (weight ? smoothed(raw, weight) : raw).filter(inside)};
    });
  }

  across(event) {
    if (!this.drawn) return null;
    const {box, x0, x1} = this.drawn, left = this.plot.getBoundingClientRect().left;
    return x0 + Math.min(1, Math.max(0, (event.clientX - left - box.left) / (box.right - box.left))) * (x1 - x0);
  }

  drop(event) {
    const to = this.across(event), from = this.from;
    this.from = null;
    if (from !== null && to !== null && Math.abs(this.drawn.X(to) - this.drawn.X(from)) > 8) this.within([Math.min(from, to), Math.max(from, to)]);
    else this.draw();
  }

  within(zoom) {
    this.zoom = zoom;
    this.axis = one('.across')?.value;
    this.at = this.near = null;
    this.whole.hidden = !zoom;
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth, height = this.plot.clientHeight, series = this.prepared();
    if (!width) return;
    const log = this.log ? this.log.checked : this.data.log, picked = this.pick?.value;
    const seen = series.flatMap(s => [...s.points, ...(s.raw ?? [])]).filter(p => !log || p[1] > 0);
    if (!seen.length) {
      this.plot.replaceChildren();
      this.drawn = null;
      this.readout.textContent = 'nothing yet';
      return;
    }
    const xs = seen.map(p => p[0]), ys = seen.map(p => p[1]);
    let [x0, x1] = extent(xs), [y0, y1] = extent(ys);
    const banded = series.filter(s => s.band.length && (series.length <= 6 || this.near === s.name));
    for (const s of banded) for (const [, low, high] of s.band) if (!log || low > 0) { y0 = Math.min(y0, low); y1 = Math.max(y1, high); }
    if (this.zoom) [x0, x1] = this.zoom;
    else {
      if (this.data.x1 && !one('.across')?.selectedIndex) x1 = Math.max(x1, this.data.x1);
      if (this.data.x0 !== undefined) x0 = Math.min(x0, this.data.x0);
    }
    if (y1 - y0 < Math.abs(y1) * 1e-6) y1 = y0;
    if (x1 === x0) { x0 -= .5; x1 += .5; }
    if (log) { const pad = (y1 / y0) ** .05; y0 /= pad > 1 ? pad : 1.5; y1 *= pad > 1 ? pad : 1.5; }
    else { const pad = (y1 - y0) * .06 || Math.abs(y1) * .1 || 1; y0 -= pad; y1 += pad; }
    const named = series.length <= 6 && width > 420 && series.length > 1;
    const longest = named ? Math.min(width / 4, 6.3 * Math.max(...series.map(s => s.name.length)) + 10) : 0;
    const box = {left: 46, right: width - 12 - longest, top: 8, bottom: height - 22};
    const f = log ? Math.log : v => v;
    const X = x => box.left + (x - x0) / (x1 - x0) * (box.right - box.left);
    const Y = y => box.bottom - (f(y) - f(y0)) / (f(y1) - f(y0)) * (box.bottom - box.top);
    const svg = node('svg', {viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true'});
    for (const y of ticks(y0, y1, log, 5)) svg.append(
      node('line', {class: 'grid', x1: box.left, x2: box.right, y1: Y(y), y2: Y(y)}),
      node('text', {class: 'tick', x: box.left - 5, y: Y(y) + 4, 'text-anchor': 'end'}, short(y)));
    for (const x of ticks(x0, x1, false, Math.max(2, width / 110))) svg.append(
      node('line', {class: 'grid', x1: X(x), x2: X(x), y1: box.top, y2: box.bottom}),
      node('text', {class: 'tick', x: X(x), y: box.bottom + 15, 'text-anchor': 'middle'}, short(x)));
    svg.append(node('line', {class: 'axis', x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom}));
    const labels = [];
    for (const s of banded) {
      const shown = s.band.filter(p => !log || p[1] > 0), edge = (p, k) => X(p[0]).toFixed(1) + ',' + Y(p[k]).toFixed(1);
      svg.append(node('polygon', {class: 'band g' + s.colour, points: [...shown.map(p => edge(p, 2)), ...shown.reverse().map(p => edge(p, 1))].join(' ')}));
    }
    for (const s of series) {
      const way = points => points.filter(p => !log || p[1] > 0).map(([x, y]) => X(x).toFixed(1) + ',' + Y(y).toFixed(1)).join(' ');
      const dim = picked && s.name !== picked ? ' faded' : picked || this.near === s.name ? ' lit' : '';
      const group = node('g', {class: (s.rest ? 'rest' : 'g' + s.colour) + dim});
      if (s.raw) group.append(node('polyline', {class: 'curve raw', points: way(s.raw)}));
      if (!this.data.dots || s.line) group.append(node('polyline', {class: 'curve' + (s.dashed ? ' dashed' : '') + (s.dash ? ' dash' + s.dash : '') + dim, points: way(s.points)}));
      if (this.data.dots && !s.line || s.points.length === 1) for (const [x, y] of s.points) if (!log || y > 0)
        group.append(node('circle', {class: 'dots', cx: X(x), cy: Y(y), r: 3}));
      svg.append(group);
      const last = s.points.at(-1);
      if (named && last) labels.push({y: Y(last[1]), s, x: X(last[0])});
    }
    labels.sort((a, b) => a.y - b.y);
    labels.forEach((l, i) => { if (i) l.y = Math.max(l.y, labels[i - 1].y + 12); });
    const over = Math.max(0, (labels.at(-1)?.y ?? 0) - box.bottom);
    labels.forEach(l => svg.append(node('text', {class: 'ending g' + l.s.colour, x: box.right + 6, y: l.y - over + 4}, l.s.name.slice(0, Math.floor(longest / 6)))));
    if (this.from !== null && this.to !== null) svg.append(node('rect', {class: 'zoom', x: Math.min(X(this.from), X(this.to)), width: Math.abs(X(this.to) - X(this.from)), y: box.top, height: box.bottom - box.top}));
    if (this.at !== null) svg.append(node('line', {class: 'cross', x1: X(this.at), x2: X(this.at), y1: box.top, y2: box.bottom}));
    this.plot.replaceChildren(svg);
    this.drawn = {series, X, Y, x0, x1, box, xs: [...new Set(xs)].sort((a, b) => a - b)};
    this.say(picked);
  }

  say(picked) {
    const {series} = this.drawn, values = [];
    for (const s of series) {
      const points = s.raw ?? s.points, p = this.at === null ? points.at(-1) : nearest(points, this.at);
      if (p && (!picked || s.name === picked)) values.push([s.name, p[1], p[0]]);
    }
    const first = this.near ? values.filter(v => v[0] === this.near) : [];
    const shown = (first.length ? first : values).slice(0, 6);
    const rest = values.length - shown.length;
    const said = shown.map(([name, y]) => (series.length > 1 ? name + ' ' : '') + short(y)).join(', ');
    this.readout.textContent = (this.at === null ? 'last: ' : short(this.at) + ': ') + said + (rest > 0 && !first.length ? ', and ' + rest + ' more' : '');
    this.plot.setAttribute('aria-label', this.data.title + ', ' + this.readout.textContent);
  }

  point(event) {
    if (!this.drawn) return;
    const {X, Y, xs, series} = this.drawn, rect = this.plot.getBoundingClientRect(), x = this.to = this.across(event);
    this.at = xs.reduce((best, v) => Math.abs(v - x) < Math.abs(best - x) ? v : best, xs[0]);
    let far = 18;
    this.near = null;
    if (series.length > 1) for (const s of series) {
      const p = nearest(s.points, this.at), d = p ? Math.hypot(Y(p[1]) - (event.clientY - rect.top), X(p[0]) - X(this.at)) : 99;
      if (d < far) { far = d; this.near = s.name; }
    }
    this.draw();
  }

  key(event) {
    const way = {ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9, Escape: 0}[event.key];
    if (!this.drawn) return;
    if (event.key === '+' && this.at !== null) {
      const {x0, x1} = this.drawn, half = (x1 - x0) / 4, middle = Math.min(x1 - half, Math.max(x0 + half, this.at));
      return this.within([middle - half, middle + half]);
    }
    if (event.key === '-') return this.within(null);
    if (way === undefined) return;
    event.preventDefault();
    const xs = this.drawn.xs, here = this.at === null ? xs.length : xs.indexOf(this.at);
    this.at = way === 0 ? null : xs[Math.min(xs.length - 1, Math.max(0, here + way))];
    this.draw();
  }
}

function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
  return [low, high];
}

// the point of a curve at x; none where the curve has ended before
function nearest(points, x) {
  let best = null;
  if (!points.length || x > points.at(-1)[0]) return null;
  for (const p of points) if (!best || Math.abs(p[0] - x) < Math.abs(best[0] - x)) best = p;
  return best;
}

function at(table, x) {
  const i = table.findIndex(p => p[0] >= x);
  if (i < 0) return table.at(-1)?.[1] ?? x;
  const [x1, y1] = table[i], [x0, y0] = i ? table[i - 1] : [0, 0];
  return x1 === x0 ? y1 : y0 + (x - x0) / (x1 - x0) * (y1 - y0);
}

const charts = new Map();
all('figure.chart').forEach(figure => charts.set(figure.id, new Chart(figure)));
const redraw = () => charts.forEach(chart => chart.within(chart.axis === one('.across')?.value ? chart.zoom : null));
one('.smooth')?.addEventListener('input', event => {
  one('.smoothing output').textContent = (+event.target.value).toFixed(2);
  redraw();
});
one('.across')?.addEventListener('change', redraw);

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
});
document.addEventListener('change', event => {
  const form = event.target.closest('form.compare');
  if (form && event.target.type === 'checkbox') ready(form);
  if (event.target.matches('.same')) all('.alike').forEach(row => { row.hidden = !event.target.checked; });
});
document.addEventListener('click', async event => {
  const button = event.target.closest('.copies');
  if (!button) return;
  await navigator.clipboard.writeText(button.previousElementSibling.textContent);
  button.textContent = 'Copied';
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
});
one('button.curves')?.addEventListener('click', () => { location.href = '/curves?' + new URLSearchParams({where: condition()}); });

all('form.compare').forEach(ready);
recall();
times();
setTimeout(news, 1000);

// The dashboard's script: asks for news, draws charts, sorts, filters. Without it the tables are there as they were sent.

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
    const text = age < 7 * 86400 ? ago(Math.max(0, age)) : time.title.slice(0, 10);
    if (time.textContent !== text) time.textContent = text;
  });
}

// --- the runs, which the server filters, sorts and cuts ---

const CHUNK = 100, MOST = +document.body.dataset.most, choose = one('#choose'), ticked = new Set();
let most = CHUNK, asking = 0;

async function list(count = CHUNK) {
  const asked = new URLSearchParams([...new FormData(choose)].filter(([, value]) => value)), turn = ++asking, wrong = one('.wrong');
  history.replaceState(null, '', asked.size ? '?' + asked : location.pathname);
  most = count;
  if (most > CHUNK) asked.set('most', most);
  document.body.dataset.live = '/news?' + asked;
  const answer = await fetch('/runs?' + asked, {cache: 'no-store'}), text = await answer.text();
  if (turn !== asking) return;
  wrong.hidden = answer.ok;
  if (!answer.ok) { wrong.textContent = text; return; }
  place('runs', text);
  if (most === CHUNK) one('#part-runs .scroll').scrollTop = 0;
}

// ticked ones are compared wherever they are
function tick() {
  const boxes = all('#table-runs input'), here = new Set(boxes.map(box => box.value));
  boxes.forEach(box => { box.checked = ticked.has(box.value); });
  one('#kept').replaceChildren(...[...ticked].filter(name => !here.has(name)).map(name => made('input', {type: 'hidden', name: 'run', value: name})));
}

if (choose) {
  choose.addEventListener('submit', event => {
    event.preventDefault();
    if (event.submitter?.name === 'sort') one('#sort').value = event.submitter.value;
    list();
  });
  document.addEventListener('scroll', event => {
    const area = event.target, more = one('.more');
    if (more && area.contains(more) && area !== document && area.scrollTop + area.clientHeight > area.scrollHeight - 400) {
      more.remove();
      list(most + CHUNK);
    }
  }, true);
}

// the runs that the table shows, as a condition
function condition() {
  const quoted = text => "'" + text.replaceAll("'", "''") + "'", asked = new FormData(choose), where = asked.get('where').trim();
  if (ticked.size) return 'run in (' + [...ticked].map(quoted).join(', ') + ')';
  const by = ['state', 'study'].filter(key => asked.get(key)).map(key => key + ' = ' + quoted(asked.get(key)));
  return [...(where ? [by.length ? '(' + where + ')' : where] : []), ...by].join(' and ');
}

// the studies that have these words
function within() {
  const words = one('.within')?.value.toLowerCase().split(/\s+/).filter(Boolean) ?? [], rows = all('#table-studies tbody tr');
  rows.forEach(row => { row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word)); });
  if (words.length) one('.studies').textContent = rows.filter(row => !row.hidden).length + ' of ' + rows.length;
}

function ready(form) {
  const count = [...new FormData(form)].length, button = [...form.elements].find(part => part.matches('button.compare'));
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
one('.across')?.addEventListener('change', () => charts.forEach(chart => { chart.zoom = chart.at = null; chart.draw(); }));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

// --- news ---

function place(id, html) {
  const part = one('#part-' + id);
  if (!part || part.dataset.html === html) return;
  part.dataset.html = html;
  const open = new Map(all('details[id]', part).map(d => [d.id, d.open])), sorts = all('.sortable th[aria-sort]', part).map(th => th.getAttribute('aria-sort'));
  const focus = part.contains(document.activeElement) ? document.activeElement : null;
  const where = focus && all('a, button, input, summary, [tabindex]', part).indexOf(focus), scroll = all('.scroll', part).map(s => [s.scrollLeft, s.scrollTop]);
  part.innerHTML = html;
  all('details[id]', part).forEach(d => { if (open.has(d.id)) d.open = open.get(d.id); });
  all('.sortable th[aria-sort]', part).forEach((th, i) => th.setAttribute('aria-sort', sorts[i] ?? 'none'));
  all('.scroll', part).forEach((s, i) => { if (scroll[i]) [s.scrollLeft, s.scrollTop] = scroll[i]; });
  all('table.sortable', part).forEach(sortTable);
  if (focus) all('a, button, input, summary, [tabindex]', part)[where]?.focus();
  if (id === 'runs') tick();
  times(part);
}

function rows(news) {
  const template = made('template');
  for (const [id, fresh] of Object.entries(news)) {
    const body = one('#' + id + ' tbody');
    if (!body && !fresh.count) continue;
    if (!body) return location.reload();
    template.innerHTML = fresh.rows.join('');
    for (const row of [...template.content.children]) {
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

const body = document.body, sign = one('#live');
let tag = body.dataset.tag, version = tag, pause = 2000, wrong = 0;

// --- the main figure of a study, whose tests take seconds ---

const SECONDS = 20;
let forestTag = '', asked = -Infinity;
async function forest() {
  const place = one('#forest');
  if (!place || performance.now() - asked < 1000 * SECONDS) return;
  asked = performance.now();
  const answer = await fetch(place.dataset.of, {headers: {'If-None-Match': '"' + forestTag + '"'}, cache: 'no-store'});
  if (answer.status === 304) return;
  forestTag = (answer.headers.get('ETag') || '').replaceAll('"', '');
  place.innerHTML = await answer.text();
  charts.forEach(chart => chart.show(chart.data));  // in the colours of its verdicts
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
      sign.textContent = 'no longer there';
      sign.className = 'bad';
      return;
    } else if (answer.status !== 304) throw new Error(answer.status);
    wrong = 0;
    const word = pause > 2000 ? 'up to date' : 'live';
    if (sign.textContent !== word) sign.textContent = word;
    sign.className = 'soft';
  } catch (error) {
    wrong += 1;
    if (wrong > 1) { sign.textContent = 'the server does not answer'; sign.className = 'bad'; }
  }
  times();
  setTimeout(news, wrong ? 5000 : pause);
}

document.addEventListener('visibilitychange', () => { if (!document.hidden) times(); });
let soon;
document.addEventListener('input', event => {
  if (event.target.form === choose && choose) {
    clearTimeout(soon);
    soon = setTimeout(list, 150);
  }
  if (event.target.matches('.within')) within();
});
document.addEventListener('change', event => {
  const form = event.target.closest('form.compare');
  if (event.target.name === 'run') event.target.checked ? ticked.add(event.target.value) : ticked.delete(event.target.value);
  if (form && event.target.type === 'checkbox') ready(form);
});
// a row's name opens what is known of it, over the page
document.addEventListener('click', async event => {
  const link = event.target.closest('a.panel');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const panel = one('dialog') ?? document.body.appendChild(made('dialog')), close = made('button', {type: 'button', className: 'plain close', textContent: 'Close', onclick: () => panel.close()});
  const answer = await fetch(link.href), found = new DOMParser().parseFromString(await answer.text(), 'text/html');
  panel.ariaLabel = link.textContent;
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
  if (event.target.matches('form.compare')) event.submitter.textContent = 'Comparing ' + [...new FormData(event.target)].length + '…';
});
addEventListener('pageshow', () => all('form.compare').forEach(ready));
times();
setTimeout(news, 1000);

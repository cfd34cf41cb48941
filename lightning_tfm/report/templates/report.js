// The script of all pages. Without it all numbers and pictures are there, only unsorted; attention maps need it.
'use strict';
const one = (query, inside = document) => inside.querySelector(query);
const all = (query, inside = document) => [...inside.querySelectorAll(query)];

function sortable(body, rows) {
  const next = {none: 'ascending', ascending: 'descending', descending: 'none'};
  all('#table thead button').forEach(button => button.addEventListener('click', () => {
    const th = button.closest('th'), i = [...th.parentNode.children].indexOf(th);
    const direction = next[th.getAttribute('aria-sort')];
    all('#table th[aria-sort]').forEach(other => other.setAttribute('aria-sort', 'none'));
    th.setAttribute('aria-sort', direction);
    const order = [...rows];
    if (direction !== 'none') order.sort((a, b) => {
      const x = a.children[i].dataset.v, y = b.children[i].dataset.v;
      if (x === '' || y === '') return (x === '') - (y === '');
      const d = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return direction === 'ascending' ? d : -d;
    });
    body.append(...order);
    body.classList.toggle('sorted', direction !== 'none');
  }));
}

function filtered(rows) {
  const text = one('#find'), verdict = one('#verdict');
  const filter = () => {
    let shown = 0;
    rows.forEach(row => {
      const hit = row.textContent.toLowerCase().includes(text.value.toLowerCase())
        && (!verdict.value || row.dataset.verdicts.split('|').includes(verdict.value));
      row.hidden = !hit;
      shown += hit;
    });
    one('#count').textContent = shown + ' of ' + rows.length + ' rows';
  };
  text.addEventListener('input', filter);
  verdict.addEventListener('change', filter);
}

function attentionMaps(runs) {
  const svg = 'http://www.w3.org/2000/svg';
  const control = name => one('#attention-' + name), maps = control('maps'), said = control('said');
  const choose = (select, names) => select.replaceChildren(...names.map((name, i) => new Option(name, i)));
  const square = (x, y, weight, words) => {
    const rect = document.createElementNS(svg, 'rect');
    Object.entries({x, y, width: 1, height: 1, 'fill-opacity': weight}).forEach(pair => rect.setAttribute(...pair));
    rect.dataset.said = words + ': ' + weight.toFixed(3);
    return rect;
  };
  const map = (head, name, kind, across, down) => {
    const figure = document.createElement('figure'), caption = document.createElement('figcaption');
    const picture = document.createElementNS(svg, 'svg');
    picture.setAttribute('viewBox', '0 0 ' + across.length + ' ' + down.length);
    picture.setAttribute('role', 'img');
    let bits = 0;
    head.forEach((row, y) => row.forEach((thousandths, x) => {
      const p = thousandths / 1000;
      if (p > 0) bits -= p * Math.log2(p) / head.length;
      if (thousandths >= 4) picture.append(square(x, y, p, down[y] + ' \u2192 ' + across[x]));
    }));
    caption.textContent = name + ', entropy ' + bits.toFixed(2) + ' bit';
    picture.setAttribute('aria-label', kind + ' attention, ' + caption.textContent);
    picture.addEventListener('mousemove', event => {
      if (event.target.dataset.said) said.textContent = name + ': ' + event.target.dataset.said;
    });
    figure.append(picture, caption);
    return figure;
  };
  const draw = () => {
    const sentence = runs[control('run').value].sentences[control('sentence').value], kind = control('kind').value;
    const across = kind === 'decoder' ? sentence.target_in : sentence.source;
    const down = kind === 'encoder' ? sentence.source : sentence.target_in;
    maps.replaceChildren(...sentence[kind].flatMap((layer, l) => layer.map((head, h) =>
      map(head, 'layer ' + (l + 1) + ', head ' + (h + 1), kind, across, down))));
  };
  const sentences = () => {
    const found = runs[control('run').value].sentences;
    choose(control('sentence'), found.map(sentence => sentence.source.join(' ').slice(0, 90)));
    draw();
  };
  choose(control('run'), runs.map(run => run.row + ', seed ' + run.seed));
  control('run').addEventListener('change', sentences);
  control('sentence').addEventListener('change', draw);
  control('kind').addEventListener('change', draw);
  sentences();
}

function reloading(seen) {
  setInterval(async () => {
    try {
      const version = await (await fetch(location.pathname.replace(/\/$/, '') + '/version')).text();
      if (version !== seen) {
        sessionStorage.y = scrollY;
        location.reload();
      }
    } catch (error) {
      document.title = '(stopped) ' + document.title;
    }
  }, 2000);
  if (sessionStorage.y) scrollTo(0, +sessionStorage.y);
}

const body = one('#table tbody');
if (body) {
  const rows = all('tr', body);
  sortable(body, rows);
  filtered(rows);
}

all('.uses-log input').forEach(box => box.addEventListener('change', () =>
  box.closest('figure').classList.toggle('uselog', box.checked)));

all('select.pick').forEach(select => select.addEventListener('change', () => {
  const figure = select.closest('figure'), name = select.value;
  all('svg', figure).forEach(picture => picture.classList.toggle('picking', name !== ''));
  all('.series', figure).forEach(line => line.classList.toggle('on', name !== '' && line.dataset.row === name));
}));

const openTarget = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === 'DETAILS') target.open = true;
};
addEventListener('hashchange', openTarget);
openTarget();

const data = one('#attention-data');
if (data) attentionMaps(JSON.parse(data.textContent));

if (document.body.dataset.live) reloading(document.body.dataset.version);

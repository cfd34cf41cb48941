// Live charts: uPlot draws them; here is what a reader can do with them by pointer, by touch and by keyboard.
const DASHES = [[], [7, 3], [2, 3], [8, 3, 2, 3]];
const css = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
// the class of a line's colour: its verdict's, where the page's main figure has one
const kind = series => {
  const style = series.row && one('#forest [data-row="' + CSS.escape(series.row) + '"] > g')?.getAttribute('class');
  return style && !['plain', 'untested'].includes(style) ? style : series.rest ? 'rest' : 'g' + series.colour;
};
const dashes = series => /^g\d/.test(kind(series)) ? series.dash ?? 0 : 0;  // a verdict's colour is of many lines
const colour = series => css(kind(series) === 'rest' ? 'open' : kind(series));
const short = value => {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(1).replace('.0e', 'e').replace('e+', 'e').replaceAll('-', '−');
  return (size >= 1000 && value % 100 === 0 ? value / 1000 + 'K' : String(+value.toPrecision(4))).replace('-', '−');
};
const percent = value => {
  const round = Math.abs(value) >= 9.95 ? Math.round(value) : +value.toFixed(1);
  return (round > 0 ? '+' : '') + short(round) + ' %';
};

// on a logarithmic axis, as many round numbers as are of use
function ticks(low, high) {
  const tens = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) tens.push(10 ** e);
  for (const steps of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]]) {
    const round = tens.flatMap(ten => steps.map(m => +(m * ten).toPrecision(6))).filter(v => v >= low && v <= high);
    if (round.length >= 4) return round.length <= 12 ? round : round.filter((v, i) => i % 2 === 0);
  }
  const raw = (high - low) / 5, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(m => m * power >= raw * .999) * power, first = Math.ceil(low / step - 1e-9);
  return Array.from({length: Math.floor(high / step + 1e-9) - first + 1}, (_, i) => +((first + i) * step).toPrecision(12));
}

// on an axis that is logarithmic on both sides of zero, from there outwards, apart from each other
function bothWays(u, low, high) {
  const found = [0];
  for (const side of [1, -1]) {
    let last = u.valToPos(0, 'y');
    for (let e = -1; e < 7; e++) for (const m of [1, 2, 5]) {
      const value = side * m * 10 ** e, y = u.valToPos(value, 'y');
      if (value >= low && value <= high && Math.abs(y - last) >= 22) { found.push(value); last = y; }
    }
  }
  return found.sort((a, b) => a - b);
}

function smoothed(points, weight) {
  let mean = 0, share = 0;
  return points.map(([x, y]) => {
    mean = mean * weight + (1 - weight) * y;
    share = share * weight + (1 - weight);
    return [x, mean / share];
  });
}

// the value of another axis at a step
function at(table, x) {
  const i = table.findIndex(p => p[0] >= x);
  if (i < 0) return table.at(-1)?.[1] ?? x;
  const [x1, y1] = table[i], [x0, y0] = i ? table[i - 1] : [0, 0];
  return x1 === x0 ? y1 : y0 + (x - x0) / (x1 - x0) * (y1 - y0);
}

// the point of a curve at x; none where the curve has ended before
function nearest(points, x) {
  if (!points.length || x > points.at(-1)[0]) return null;
  return points.reduce((best, p) => Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best);
}

class Chart {
  constructor(figure) {
    for (const part of ['plot', 'readout', 'pick', 'logs', 'toggles', 'whole', 'raw']) this[part] = one('.' + part, figure);
    this.drawn = this.at = this.top = this.zoom = this.near = null;
    this.hidden = new Set();
    this.show(JSON.parse(one('script[type="application/json"]', figure).textContent));
    this.pick?.addEventListener('change', () => this.draw());
    this.logs?.addEventListener('change', () => this.draw());
    this.raw?.addEventListener('change', () => { this.zoom = this.at = null; this.draw(); });
    this.whole.addEventListener('click', () => this.zoomed(null));
    this.plot.addEventListener('keydown', event => this.key(event));
    this.plot.addEventListener('mousedown', () => {
      this.dragged = 'now';
      addEventListener('mouseup', () => setTimeout(() => {
        const late = this.dragged === 'late';
        this.dragged = '';
        if (late) this.draw();
      }), {once: true});
    });
    new ResizeObserver(() => {
      if (this.plot.clientWidth !== this.drawn?.width || this.plot.clientHeight !== this.drawn.height) this.draw();
    }).observe(this.plot);
  }

  show(data) {
    this.data = data;
    const names = data.series.map(s => s.name), before = this.pick?.value, keys = data.series.map(s => kind(s) + s.name).join('|');
    const all = keys + JSON.stringify(data);
    if (all === this.all) return;  // nothing in it has changed
    this.all = all;
    if (keys !== this.keys) {
      this.keys = keys;
      this.pick?.replaceChildren(new Option('all', ''), ...names.map(name => new Option(name, name)));
      if (names.includes(before)) this.pick.value = before;
      this.toggles?.replaceChildren(...data.series.map(s => this.toggle(s)));
    }
    this.draw();
  }

  // an entry of the key, which hides its curve and shows it again
  toggle(series) {
    const sign = this.data.dots && !series.line ? (series.hollow ? '○ ' : '● ') : ['━ ', '╍ ', '┅ ', '┉ '][dashes(series)];
    const mark = made('span', {className: kind(series), textContent: sign, ariaHidden: 'true'});
    const button = made('button', {type: 'button'}, mark, made('bdi', {textContent: series.name}));
    const press = () => { button.ariaPressed = String(!this.hidden.has(series.name)); };
    button.onclick = () => {
      this.hidden.delete(series.name) || this.hidden.add(series.name);
      press();
      this.draw();
    };
    press();
    return made('li', {}, button);
  }

  // what is drawn: of each series its points over the chosen axis, and smoothed ones in front of them
  lines() {
    const weight = this.data.dots ? 0 : +(one('.smooth')?.value ?? 0), axis = one('.across')?.value ?? 'step', log = this.log;
    if (this.against) return this.data.series.filter(s => s !== this.against && !this.hidden.has(s.name)).map(s => {
      const points = this.differences(s);
      return {...s, points, front: weight ? smoothed(points, weight) : null, band: []};
    }).filter(s => s.points.length);
    return this.data.series.filter(s => !this.hidden.has(s.name) && (axis === 'step' || s.across?.[axis])).map(s => {
      const over = points => points.filter(p => !log || p[1] > 0).map(([x, ...ys]) => [axis === 'step' ? x : at(s.across[axis], x), ...ys]);
      const points = over(s.points);
      return {...s, points, front: weight ? smoothed(points, weight) : null, band: over(s.band ?? [])};
    }).filter(s => s.points.length);
  }

  // how far a curve is from that which others are shown against, at the same share of its own training, in percent
  differences(s) {
    const level = this.against.points.map(([x, y]) => [x / this.against.steps, Math.log(y)]), known = level.at(-1)[0];
    return s.points.map(([x, y]) => [x / s.steps, Math.log(y)]).filter(([x]) => x >= level[0][0] && x <= known)
      .map(([x, y]) => [100 * x, 100 * Math.expm1(y - at(level, x))]);
  }

  // anew only where more than the values is another: what the pointer and the keyboard hold stays
  draw() {
    const width = this.plot.clientWidth, height = this.plot.clientHeight;
    if (!width) return;
    if (this.dragged) {  // what is drawn anew would forget where the drag began
      this.dragged = 'late';
      return;
    }
    this.against = this.raw && !this.raw.checked ? this.data.series.find(s => s.name === this.data.to) : null;
    if (this.logs) this.logs.parentNode.hidden = !!this.against;
    this.log = !this.against && (this.logs ? this.logs.checked : this.data.log);
    this.shown = this.lines();
    if (this.toggles) [...this.toggles.children].forEach((entry, i) => { entry.hidden = this.data.series[i] === this.against; });
    if (!this.shown.length) {
      this.drawn?.destroy();
      this.drawn = null;
      this.readout.textContent = 'nothing yet';
      return;
    }
    this.named = 12 * this.shown.length <= height - 40 && width > 420 && this.shown.length > 1;
    const right = this.named ? Math.min(width / 3, 6 * (Math.max(...this.shown.map(s => s.name.length)) + (this.against ? 8 : 0)) + 16) : 20;
    this.letters = Math.floor((right - 14) / 6);
    const {columns, series, bands} = this.columns();
    const look = JSON.stringify([width, height, right, this.log, this.against?.name, css('fg'), series, bands.map(b => b.series), this.shown.map(s => s.name)]);
    if (this.drawn && look === this.look) {
      this.drawn.setData(columns, false);
      this.within();
      this.say();
      return;
    }
    this.look = look;
    this.drawn?.destroy();
    this.drawn = null;
    const axis = {stroke: css('soft'), grid: {stroke: css('rule'), width: .6}, ticks: {show: false}, font: '11px system-ui, sans-serif'};
    const [across, up] = this.against ? [v => short(v) + ' %', v => v ? percent(v) : this.data.to] : [short, short], log = this.log;
    const last = this.shown.map(s => Math.abs(s.points.at(-1)[1])), around = Math.min(2, Math.max(...last) / 5) || 1;
    const splits = this.against ? (u, i, low, high) => bothWays(u, low, high) : log ? (u, i, low, high) => ticks(low, high) : null;
    this.drawn = new uPlot({
      width, height, padding: [8, right, 0, 0], legend: {show: false}, focus: {alpha: .15}, series, bands,
      scales: {x: {time: false}, y: {distr: this.against ? 4 : log ? 3 : 1, asinh: around, range: (u, low, high) => this.range(low, high)}},
      axes: [{...axis, size: 26, gap: 4, space: 90, values: (u, values) => values.map(across)},
        {...axis, size: 56, gap: 5, space: 36, values: (u, values) => values.map(up), ...(splits ? {splits, filter: (u, all) => all} : {})}],
      cursor: {y: false, points: {show: false}, drag: {setScale: false, dist: 8}, bind: {dblclick: () => () => this.zoomed(null)}},
      hooks: {draw: [u => this.ends(u)], setCursor: [u => this.point(u)], setSelect: [u => this.select(u)]},
    }, columns, this.plot);
    this.drawn.over.addEventListener('pointermove', event => this.drawn.setCursor({left: event.offsetX, top: event.offsetY}));
    this.within();
    if (this.pick?.value) this.focus(this.pick.value);
    this.say();
  }

  // a column of x and, of each series, those of its points, of what is in front, and of the two edges of its band
  columns() {
    const series = [{}], tables = [], bands = [], few = this.shown.length <= 6, ground = css('bg');
    const last = (u, i) => [u.data[i].findLastIndex(y => y != null)];
    const add = (points, k, look) => {
      tables.push([points.map(p => p[0]), points.map(p => p[k])]);
      return series.push({pxAlign: 0, points: {show: false}, ...look}) - 1;
    };
    for (const s of this.shown) {
      const stroke = colour(s), dots = this.data.dots && !s.line;
      const dash = DASHES[dashes(s)];
      if (s.band.length) {
        const edge = {stroke: 'transparent', auto: few}, pair = [add(s.band, 2, edge), add(s.band, 1, edge)];
        bands.push({series: pair, fill: () => few || this.near === s.name ? stroke + '28' : 'transparent'});
      }
      if (s.front) add(s.points, 1, {stroke: stroke + '48', width: 1, dash});
      const points = {show: dots || s.hollow || s.points.length === 1, size: 6, stroke, fill: s.hollow ? ground : stroke, width: +!!s.hollow};
      if (s.hollow && !dots) points.filter = last;
      const look = {stroke, width: s.rest ? 1 : 1.6, dash, points, ...(dots ? {paths: () => null} : s.line ? {paths: uPlot.paths.stepped({align: 1})} : {})};
      s.column = add(s.front ?? s.points, 1, look);
    }
    return {columns: uPlot.join(tables), series, bands};
  }

  range(low, high) {
    for (const x of this.zoom ?? []) for (const {points} of this.shown) if (x > points[0][0] && x < points.at(-1)[0]) {
      const y = at(points, x);  // lines that go on beyond the edges of a part
      [low, high] = [Math.min(low ?? y, y), Math.max(high ?? y, y)];
    }
    if (low === null) return this.log ? [1, 10] : [0, 1];
    if (this.against) return [1.1 * Math.min(low, 0), 1.1 * Math.max(high, 0)];
    if (this.log) {
      const pad = high / low > 1 + 1e-6 ? (high / low) ** .05 : 1.5;
      return [low / pad, high * pad];
    }
    const pad = high - low > Math.abs(high) * 1e-6 ? (high - low) * .06 : Math.abs(high) * .1 || 1;
    return [low - pad, high + pad];
  }

  // all of the axis, or a part of it
  zoomed(zoom) {
    this.zoom = zoom;
    this.within();
    this.drawn?.setSelect({left: 0, width: 0, top: 0, height: 0}, false);
  }

  within() {
    const {at, top} = this;
    this.whole.hidden = !this.zoom;
    if (!this.drawn) return;
    const xs = this.drawn.data[0], first = Math.min(xs[0], this.against ? Infinity : this.data.x0 ?? Infinity);
    const end = this.against ? 100 : one('.across')?.selectedIndex ? -Infinity : this.data.x1 ?? -Infinity, last = Math.max(xs.at(-1), end);
    const [min, max] = this.zoom ?? (first === last ? [first - .5, last + .5] : [first, last]);
    this.drawn.batch(u => u.setScale('x', {min, max}));
    if (at !== null) this.go(at, top);  // a chart that was drawn anew has forgotten it
  }

  select(u) {
    const {left, width} = u.select;
    if (width > 8) this.zoomed([u.posToVal(left, 'x'), u.posToVal(left + width, 'x')]);
  }

  label(s) {
    return (this.against ? percent((s.front ?? s.points).at(-1)[1]) + ' ' : '') + s.name;
  }

  // the names of curves where they end, apart from each other
  ends(u) {
    const {ctx, bbox} = u, right = bbox.left + bbox.width, line = (x, y, to, end) => ctx.stroke(new Path2D(`M${x} ${y}L${to} ${end}`));
    ctx.setLineDash([]);
    ctx.strokeStyle = css('fg');
    if (this.against) line(bbox.left, u.valToPos(0, 'y', true), right, u.valToPos(0, 'y', true));
    if (!this.named) return;
    const scale = devicePixelRatio, step = 12 * scale, labels = [];
    for (const s of this.shown) {
      const end = (s.front ?? s.points).at(-1), y = u.valToPos(end[1], 'y', true);
      labels.push({s, x: u.valToPos(end[0], 'x', true), y: Math.min(bbox.top + bbox.height, Math.max(bbox.top, y))});
    }
    labels.sort((a, b) => a.y - b.y).forEach((l, i) => { l.from = l.y; if (i) l.y = Math.max(l.y, labels[i - 1].y + step); });
    labels.toReversed().reduce((most, l) => (l.y = Math.min(l.y, most)) - step, bbox.top + bbox.height);
    ctx.save();
    Object.assign(ctx, {font: 11 * scale + 'px system-ui, sans-serif', textAlign: 'left', textBaseline: 'middle'});
    for (const {s, x, y, from} of labels) {
      ctx.fillStyle = ctx.strokeStyle = colour(s);
      ctx.globalAlpha = this.near && this.near !== s.name ? .3 : 1;
      line(right, from, right + 8 * scale, y);
      const words = this.label(s);
      ctx.fillText(words.length > this.letters ? words.slice(0, this.letters - 1) + '…' : words, right + 11 * scale, y);
      if (x >= right) continue;  // a curve that ends before is no flat line
      ctx.globalAlpha = .3;
      ctx.setLineDash([scale, 5 * scale]);
      line(x, from, right, from);
      ctx.setLineDash([]);
    }
    ctx.restore();
  }

  focus(name) {
    const series = this.shown.find(s => s.name === name);
    this.drawn.setSeries(series ? series.column : null, {focus: true});
  }

  // where the cursor is: the nearest step, and the curve that it is on
  point(u) {
    const {idx, left, top} = u.cursor;
    this.at = idx === null || idx === undefined || left < 0 ? null : u.data[0][idx];
    this.top = top;
    let far = 18, near = null;
    if (this.at !== null && this.shown.length > 1) for (const s of this.shown) {
      const p = nearest(s.front ?? s.points, this.at);
      const d = p ? Math.hypot(u.valToPos(p[1], 'y') - top, u.valToPos(p[0], 'x') - u.valToPos(this.at, 'x')) : far;
      if (d < far) { far = d; near = s.name; }
    }
    if (near !== this.near) {
      this.near = near;
      this.focus(near ?? this.pick?.value);
    }
    this.say();
  }

  // at a step, or of each curve the last, never smoothed
  say() {
    const picked = this.pick?.value, values = [];
    for (const s of this.shown.toSorted((a, b) => !!a.rest - !!b.rest)) {
      const p = this.at === null ? s.points.at(-1) : nearest(s.points, this.at);
      if (p && (!picked || s.name === picked)) values.push([s.name, p[1]]);
    }
    const mine = values.filter(([name]) => name === this.near), some = (mine.length ? mine : values).slice(0, 6), rest = values.length - some.length;
    const number = this.against ? percent : short, words = some.map(([name, y]) => (this.shown.length > 1 ? name + ' ' : '') + number(y)).join(', ');
    this.readout.textContent = (this.at === null ? 'last: ' : short(this.at) + (this.against ? ' %: ' : ': ')) + words + (rest > 0 && !mine.length ? ', and ' + rest + ' more' : '');
    this.plot.setAttribute('aria-label', this.data.title + ', ' + this.readout.textContent);
    delete this.plot.dataset.tip;
    delete this.plot.dataset.row;
    if (this.at === null) return;
    const axis = this.data.dots ? 'trial ' : '', across = this.against ? ' % of training' : this.data.dots ? '' : ' ' + (one('.across')?.selectedOptions[0].text ?? 'steps');
    const at = axis + short(this.at) + across, near = mine.length ? this.shown.find(s => s.name === this.near) : null;
    const tip = near ? [near.name, number(mine[0][1]) + ' at ' + at] : [at, ...some.map(([name, y]) => (this.shown.length > 1 ? name + ' ' : '') + number(y)), ...(rest > 0 ? ['and ' + rest + ' more'] : [])];
    this.plot.dataset.tip = tip.join('\n');
    if (near?.row) this.plot.dataset.row = near.row;
  }

  go(x, top = -99) {
    this.drawn.setCursor(x === null ? {left: -10, top: -10} : {left: this.drawn.valToPos(x, 'x'), top});
    const box = this.drawn.over.getBoundingClientRect(), place = {clientX: box.left + this.drawn.cursor.left, clientY: box.top + box.height / 3};
    if (top < 0 && this.plot.matches(':focus')) this.plot.dispatchEvent(new PointerEvent('pointermove', {bubbles: true, pointerType: 'mouse', ...place}));
  }

  key(event) {
    if (!this.drawn) return;
    const way = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity}[event.key], {min, max} = this.drawn.scales.x;
    if (event.key === 'Escape') this.go(null);
    else if (event.key === '-') this.zoomed(null);
    else if (event.key === '+' && this.at !== null) {
      const half = (max - min) / 4, middle = Math.min(max - half, Math.max(min + half, this.at));
      this.zoomed([middle - half, middle + half]);
    } else if (way !== undefined) {
      event.preventDefault();
      const xs = this.drawn.data[0].filter(x => x >= min && x <= max), here = this.at === null ? xs.length : xs.indexOf(this.at);
      this.go(xs[Math.min(xs.length - 1, Math.max(0, here + way))] ?? null);
    }
  }
}

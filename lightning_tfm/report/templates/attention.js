// Attention of two runs side by side: small maps of all heads, and a large one with the words on its axes.
if (one('#attention-data')) {
  const {alphabet, sentences, runs} = JSON.parse(one('#attention-data').textContent);
  const control = name => one('#attention-' + name);
  const worth = Object.fromEntries([...alphabet].map((c, i) => [c, i / (alphabet.length - 1)]));
  const choose = (select, names, chosen = 0) => {
    select.replaceChildren(...names.map((name, i) => new Option(name, i)));
    select.value = Math.min(chosen, names.length - 1);
  };
  const sides = [0, 1].map(i => (
    {run: control('run-' + i), heads: control('heads-' + i), figure: control('map-' + i)}));
  const picked = {layer: 0, head: 0};
  const colour = () => getComputedStyle(one('.attended')).getPropertyValue('--accent');

  const axes = (sentence, kind) => ({
    across: kind === 'decoder' ? sentence.target_in : sentence.source,
    down: kind === 'encoder' ? sentence.source : sentence.target_in,
  });
  const thumbnail = (weights, across) => {
    const canvas = made('canvas', {width: across, height: weights.length / across});
    const context = canvas.getContext('2d');
    context.fillStyle = colour();
    [...weights].forEach((c, i) => {
      context.globalAlpha = worth[c];
      context.fillRect(i % across, Math.floor(i / across), 1, 1);
    });
    return canvas;
  };
  const large = (weights, {across, down}, name) => {
    const size = 26, left = 92, top = 76, width = left + size * across.length, height = top + size * down.length;
    const picture = drawn('svg', {viewBox: `0 0 ${width + 20} ${height + 2}`, role: 'img', tabindex: 0, 'aria-label': name});
    picture.style.maxWidth = Math.max(240, Math.min(620, (width + 2) * 1.7)) + 'px';
    const short = word => word.length > 14 ? word.slice(0, 13) + '…' : word;
    across.forEach((word, x) => picture.append(drawn('text', {
      transform: `translate(${left + size * (x + .65)} ${top - 6}) rotate(-60)`, class: 'label'}, short(word))));
    down.forEach((word, y) => picture.append(drawn('text', {
      x: left - 6, y: top + size * (y + .65), 'text-anchor': 'end', class: 'label'}, short(word))));
    picture.append(drawn('rect', {
      x: left, y: top, width: width - left, height: height - top, fill: 'none', class: 'grid'}));
    [...weights].forEach((c, i) => {
      const x = i % across.length, y = Math.floor(i / across.length);
      const words = down[y] + ' → ' + across[x] + ': ' + worth[c].toFixed(2);
      picture.append(drawn('rect', {
        x: left + size * x, y: top + size * y, width: size - 1, height: size - 1, class: 'cell',
        'fill-opacity': worth[c], 'data-tip': words}));
    });
    return picture;
  };
  const shownLarge = (side, layers, kind, words, run) => {
    const layer = Math.min(picked.layer, layers.length - 1);
    const head = Math.min(picked.head, layers[layer].heads.length - 1);
    const name = `${run.called}, seed ${run.seed}: ${kind} attention, layer ${layer + 1}, head ${head + 1}`;
    all('svg', side.figure).forEach(old => old.remove());
    side.figure.prepend(large(layers[layer].heads[head], words, name));
    all('button', side.heads).forEach(button => button.setAttribute('aria-pressed',
      button.dataset.layer == layer && button.dataset.head == head));
    const caption = one('figcaption', side.figure);
    (one('span.words', caption) || caption.appendChild(made('span', {className: 'words'}))).textContent =
      `Layer ${layer + 1}, head ${head + 1}, entropy ${layers[layer].bits[head].toFixed(2)} bit`;
  };
  const draw = side => {
    const run = runs[side.run.value], found = run.sentences[control('sentence').value] || run.sentences[0];
    const kind = control('kind').value, layers = found[kind], words = axes(sentences[found.at], kind);
    const most = Math.max(...layers.map(layer => layer.heads.length));
    side.heads.style.gridTemplateColumns = `repeat(${Math.min(most, 16)}, minmax(24px, 64px))`;
    side.heads.replaceChildren(...layers.flatMap((layer, l) => layer.heads.map((weights, h) => {
      const ariaLabel = `layer ${l + 1}, head ${h + 1}, entropy ${layer.bits[h].toFixed(2)} bit`, onclick = () => {
        Object.assign(picked, {layer: l, head: h});
        drawBoth();
      };
      const button = made('button', {type: 'button', ariaLabel, onclick}, thumbnail(weights, words.across.length));
      Object.assign(button.dataset, {layer: l, head: h});
      return button;
    })));
    shownLarge(side, layers, kind, words, run);
  };
  const drawBoth = () => {
    const focus = document.activeElement, at = sides.findIndex(side => side.heads.contains(focus));
    const place = at < 0 ? -1 : all('button', sides[at].heads).indexOf(focus);
    sides.forEach(draw);
    if (place >= 0) all('button', sides[at].heads)[place].focus();
  };
  const names = runs.map(run => run.called + ', seed ' + run.seed);
  sides.forEach((side, i) => {
    const other = runs.findIndex(run => run.row !== runs[0].row);
    choose(side.run, names, i ? Math.max(other, 0) : 0);
    side.run.addEventListener('change', () => draw(side));
  });
  choose(control('sentence'), runs[0].sentences.map(one => sentences[one.at].source.join(' ').slice(0, 90)));
  control('sentence').addEventListener('change', drawBoth);
  control('kind').addEventListener('change', drawBoth);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawBoth);
  drawBoth();
}

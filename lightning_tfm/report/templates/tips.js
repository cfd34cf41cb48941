// One tooltip for all pictures: what a mark says, by pointer, by touch and, in a picture that has the focus, by arrow keys.
{
  const tip = document.body.appendChild(made('div', {className: 'tip', hidden: true, role: 'status'}));
  let shown = null, text = '';
  const hide = () => {
    if (shown) shown.classList.remove('lit');
    shown = null;
    tip.hidden = true;
  };
  const show = (mark, x, y) => {
    const lines = words(mark);
    if (shown !== mark || text !== lines.join('\n')) {
      hide();
      shown = mark;
      text = lines.join('\n');
      mark.classList.add('lit');
      tip.replaceChildren(...lines.map((line, i) => made(i ? 'div' : 'strong', {textContent: line})));
      tip.hidden = false;
    }
    const {width, height} = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, x + 14 + width > innerWidth ? x - 14 - width : x + 14) + 'px';
    tip.style.top = Math.max(4, y + 14 + height > innerHeight ? y - 14 - height : y + 14) + 'px';
  };
  const MARKS = '[data-tip], svg [data-row], svg [data-trial]';
  // the mark under the pointer, or beside it: a line is thin
  const of = event => {
    if (!(event.target instanceof Element) || !event.target.closest('svg, [data-tip]')) return null;
    return [[0, 0], [0, -6], [0, 6], [-6, 0], [6, 0]].map(([x, y]) =>
      document.elementFromPoint(event.clientX + x, event.clientY + y)?.closest(MARKS)).find(Boolean);
  };
  // its own words, then what the page says of its row or trial wherever that is drawn
  const words = mark => {
    const {row, trial} = mark.closest('[data-row], [data-trial]')?.dataset ?? {};
    const own = mark.dataset.tip?.split('\n') ?? [];
    const line = trial && one('#table tr[data-trial="' + CSS.escape(trial) + '"]');
    if (line) return [...own, ...[...line.children].map((cell, i) =>
      (i ? one('#table thead').rows[0].children[i].querySelector('button').innerText.trim() + ': ' : '') + cell.innerText.trim())];
    const forest = row && one('.forest-row[data-row="' + CSS.escape(row) + '"]');
    return forest && forest !== mark ? [...own, ...forest.dataset.tip.split('\n').slice(own.length ? 1 : 0)] : own;
  };
  document.addEventListener('pointermove', event => {
    const mark = of(event);
    if (mark) show(mark, event.clientX, event.clientY); else if (event.pointerType === 'mouse') hide();
  });
  document.addEventListener('pointerdown', event => {
    const mark = of(event);
    if (mark) show(mark, event.clientX, event.clientY); else hide();
  });
  document.addEventListener('focusout', hide);
  addEventListener('scroll', hide, {passive: true});
  document.addEventListener('keydown', event => {
    const picture = event.target instanceof Element ? event.target.closest('svg[tabindex]') : null;
    const step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[event.key];
    if (event.key === 'Escape') hide();
    if (!picture || !step) return;
    event.preventDefault();
    const marks = all(MARKS, picture), now = marks.indexOf(shown);
    const next = marks[now < 0 ? (step > 0 ? 0 : marks.length - 1) : (now + step + marks.length) % marks.length];
    const box = next.getBoundingClientRect();
    show(next, box.left + box.width / 2, box.top + box.height / 2);
  });
}

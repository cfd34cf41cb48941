// One tooltip for all pictures: what a mark says, by pointer, by touch and, in a picture that has the focus, by arrow keys.
{
  const tip = one('#tip');
  let shown = null;
  const hide = () => {
    if (shown) shown.classList.remove('on');
    shown = null;
    tip.hidden = true;
  };
  const show = (mark, x, y) => {
    if (shown !== mark) {
      hide();
      shown = mark;
      mark.classList.add('on');
      const [first, ...rest] = mark.dataset.tip.split('\n');
      tip.replaceChildren(made('strong', {textContent: first}), ...rest.map(line => made('div', {textContent: line})));
      tip.hidden = false;
    }
    const {width, height} = tip.getBoundingClientRect();
    const left = x + 14 + width > innerWidth ? x - 14 - width : x + 14;
    const top = y + 14 + height > innerHeight ? y - 14 - height : y + 14;
    tip.style.left = Math.max(4, left) + 'px';
    tip.style.top = Math.max(4, top) + 'px';
  };
  const of = event => event.target instanceof Element ? event.target.closest('[data-tip]') : null;
  document.addEventListener('pointermove', event => {
    const mark = of(event);
    if (mark) show(mark, event.clientX, event.clientY); else if (event.pointerType === 'mouse') hide();
  });
  document.addEventListener('pointerdown', event => {
    const mark = of(event);
    if (mark) show(mark, event.clientX, event.clientY); else hide();
  });
  addEventListener('scroll', hide, {passive: true});
  all('main svg').filter(picture => one('[data-tip]', picture)).forEach(picture => {
    picture.setAttribute('tabindex', 0);
    picture.addEventListener('blur', hide);
    picture.addEventListener('keydown', event => {
      const step = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1}[event.key];
      if (event.key === 'Escape') return hide();
      if (!step) return;
      event.preventDefault();
      const marks = all('[data-tip]', picture).filter(visible), now = marks.indexOf(shown);
      const next = marks[now < 0 ? (step > 0 ? 0 : marks.length - 1) : (now + step + marks.length) % marks.length];
      const box = next.getBoundingClientRect();
      show(next, box.left + box.width / 2, box.top + box.height / 2);
    });
  });
}

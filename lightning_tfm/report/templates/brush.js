// Parallel coordinates: a range on an axis keeps the trials inside it, in every picture and in the table.
{
  const figures = all('figure.brushed').map(figure => {
    const picture = one('svg:not(.icon)', figure), handles = all('.handle', picture);
    const top = +handles[0].getAttribute('y'), height = +handles[0].getAttribute('height');
    const percent = pair => 100 * (1 - (pair.split(',')[1] - top) / height);
    const places = new Map(all('[data-trial]', picture).map(line =>
      [line.dataset.trial, one('polyline', line).getAttribute('points').split(' ').map(percent)]));
    const ranges = all('.ranges fieldset', figure).map(fieldset => all('input', fieldset));
    return {figure, picture, handles, top, height, places, ranges};
  });
  const bounds = ([from, to]) => [Math.min(+from.value, +to.value), Math.max(+from.value, +to.value)];
  const whole = ([low, high]) => low === 0 && high === 100;
  const kept = trial => figures.every(({places, ranges}) => ranges.every((range, i) => {
    const [low, high] = bounds(range), at = places.get(trial);
    return whole([low, high]) || at !== undefined && at[i] >= low - .5 && at[i] <= high + .5;
  }));
  const show = () => {
    figures.forEach(({figure, picture, handles, top, height, ranges}) => {
      all('.brush', picture).forEach(old => old.remove());
      ranges.forEach((range, i) => {
        const [low, high] = bounds(range), handle = handles[i];
        range.forEach(input => input.setAttribute('aria-valuetext', input.value + ' % of the axis'));
        if (!whole([low, high])) handle.before(drawn('rect', {x: handle.getAttribute('x'), width: 24, class: 'brush',
          y: top + height * (1 - high / 100), height: Math.max(height * (high - low) / 100, 1)}));
      });
      one('.clear', figure).hidden = ranges.every(range => whole(bounds(range)));
    });
    all('[data-trial]').forEach(element => {
      const out = !kept(element.dataset.trial);
      if (element.tagName === 'TR') out ? element.dataset.brushed = '1' : delete element.dataset.brushed;
      else element.classList.toggle('off', out);
    });
    document.dispatchEvent(new Event('brushed'));
  };
  figures.forEach(({figure, picture, handles, top, height, ranges}) => {
    const set = (i, low, high) => {
      [ranges[i][0].value, ranges[i][1].value] = [low, high];
      show();
    };
    handles.forEach((handle, i) => {
      let start = null;
      const at = event => {
        const box = picture.getBoundingClientRect(), scale = picture.viewBox.baseVal.height / box.height;
        return Math.min(100, Math.max(0, 100 * (1 - ((event.clientY - box.top) * scale - top) / height)));
      };
      handle.addEventListener('pointerdown', event => {
        start = at(event);
        handle.setPointerCapture(event.pointerId);
      });
      handle.addEventListener('pointermove', event => {
        if (start !== null) set(i, Math.round(Math.min(start, at(event))), Math.round(Math.max(start, at(event))));
      });
      handle.addEventListener('pointerup', event => {
        if (Math.abs(at(event) - start) < 1) set(i, 0, 100);
        start = null;
      });
    });
    ranges.flat().forEach(input => input.addEventListener('input', show));
    one('.clear', figure).addEventListener('click', () => {
      ranges.forEach((_, i) => [ranges[i][0].value, ranges[i][1].value] = [0, 100]);
      show();
    });
  });
}

// Pictures: one row lit up, downloaded as SVG and PNG.
{
  all('select.pick').forEach(select => select.addEventListener('change', () => {
    const around = select.closest('.either, figure'), name = select.value;
    all('svg', around).forEach(picture => picture.classList.toggle('picking', name !== ''));
    all('.series', around).forEach(line => line.classList.toggle('on', name !== '' && (line.dataset.row || line.dataset.trial) === name));
  }));

  const KEPT = ['color', 'display', 'fill', 'fill-opacity', 'fill-rule', 'font-family', 'font-size', 'font-weight',
    'opacity', 'paint-order', 'stroke', 'stroke-dasharray', 'stroke-opacity', 'stroke-width', 'text-anchor'];
  const SCALE = 3;

  // as on white paper, whatever the page's colours: with the style that this page's sheet gives it
  const alone = picture => {
    document.documentElement.classList.add('light');
    const copy = picture.cloneNode(true), [, , width, height] = picture.getAttribute('viewBox').split(' ').map(Number);
    const from = all('*', picture), to = all('*', copy);
    from.forEach((element, i) => {
      const style = getComputedStyle(element);
      to[i].setAttribute('style', KEPT.map(name => name + ':' + style.getPropertyValue(name)).join(';'));
    });
    copy.prepend(drawn('rect', {width, height, fill: '#fff'}));
    copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
    copy.setAttribute('width', width);
    copy.setAttribute('height', height);
    copy.removeAttribute('class');
    document.documentElement.classList.remove('light');
    return {text: new XMLSerializer().serializeToString(copy), width, height};
  };
  const asSvg = (picture, name) => {
    const address = URL.createObjectURL(new Blob([alone(picture).text], {type: 'image/svg+xml'}));
    save(address, name + '.svg');
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  };
  const asPng = (picture, name) => {
    const {text, width, height} = alone(picture), image = new Image();
    image.onload = () => {
      const canvas = made('canvas', {width: SCALE * width, height: SCALE * height});
      canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
      save(canvas.toDataURL('image/png'), name + '.png');
    };
    image.src = 'data:image/svg+xml;charset=utf-8,' + encodeURIComponent(text);
  };
  const title = one('h1').textContent;
  all('main figure').forEach(figure => {
    const now = () => {
      const seen = all('svg:not(.icon)', figure).find(visible);
      return seen && one('use', seen) ? one('svg', figure) : seen;  // parts of a picture are shown, all of it is saved
    };
    const name = figure.ariaLabel || one('svg:not(.icon)', figure).ariaLabel;
    const buttons = [['SVG', asSvg], ['PNG', asPng]].map(([kind, act]) => made('button', {
      type: 'button', textContent: kind, ariaLabel: 'Download as ' + kind + ': ' + name, onclick: () => {
        if (now()) act(now(), slug(title + ' ' + now().ariaLabel.split(',')[0]));
      }}));
    const place = one('figcaption', figure) || figure.appendChild(made('figcaption'));
    place.prepend(made('span', {className: 'tools'}, ...buttons));
  });
}

// The scripts of all pages. Without them all numbers and pictures are there, only unsorted; attention maps need them.
const drawn = (name, attributes, ...content) => {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.append(...content);
  return element;
};
const visible = element => element.getClientRects().length > 0;

let silent;
const say = words => {
  one('#said').textContent = words;
  clearTimeout(silent);
  silent = setTimeout(() => one('#said').textContent = '', 4000);
};
const slug = words => words.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '') || 'figure';
const save = (address, name) => {
  const link = made('a', {href: address, download: name});
  document.body.append(link);
  link.click();
  link.remove();
};

{
  const openTarget = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const [, key, number] = /^#(runs|architecture)-(\d+)$/.exec(location.hash) || [];
    if (!target || !key) return;
    one('#pick-' + key).value = number;
    target.scrollIntoView();
  };
  addEventListener('hashchange', openTarget);
  openTarget();
}

if (document.body.dataset.live) {
  const seen = document.body.dataset.version;
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

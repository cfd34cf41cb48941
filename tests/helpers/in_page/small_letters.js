// elements whose letters are below nine pixels
() => [...document.querySelectorAll('body *')].filter(e => {
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  if (!own || !e.getClientRects().length || !e.getBoundingClientRect().width) return false;
  const drawn = e.closest('svg') && e.getScreenCTM ? Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b) : 1;
  return parseFloat(getComputedStyle(e).fontSize) * drawn < 9;
}).map(e => e.outerHTML.slice(0, 200))

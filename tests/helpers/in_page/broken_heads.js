// words of tables' heads that do not stand on one line
() => [...document.querySelectorAll('thead th')].flatMap(head => {
  const texts = document.createTreeWalker(head, NodeFilter.SHOW_TEXT), found = [];
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/[^\s-]+-?/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(line => Math.round(line.top))).size > 1) found.push(word[0]);
    }
  }
  return found;
})

// Translations: two rows side by side, or all.
{
  const sides = all('#translated select');
  const narrow = () => {
    const chosen = sides.map(side => side.value).filter(Boolean);
    all('.cards').forEach(cards => {
      const found = all('li', cards);
      found.forEach(card => card.hidden = chosen.length > 0 && !chosen.includes(card.dataset.row));
      chosen.forEach(row => cards.append(...found.filter(card => card.dataset.row === row)));
      if (!chosen.length) cards.append(...found.sort((a, b) => a.dataset.place - b.dataset.place));
    });
    if (chosen.length) all('details.sentence').forEach(sentence => sentence.open = true);
  };
  all('.cards').forEach(cards => all('li', cards).forEach((card, i) => card.dataset.place = i));
  sides.forEach(side => side.addEventListener('change', narrow));
}

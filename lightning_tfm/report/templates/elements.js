// Elements of a page: found and made. Before all other scripts, of reports and of the dashboard.
'use strict';
const one = (query, inside = document) => inside.querySelector(query);
const all = (query, inside = document) => [...inside.querySelectorAll(query)];
const made = (name, properties = {}, ...content) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...content);
  return element;
};

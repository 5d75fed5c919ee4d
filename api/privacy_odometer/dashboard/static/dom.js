// Makes elements. Text always becomes a text node, so text from a caller can never become markup.

/** Makes an element with attributes (`on*` are listeners; `false` and `null` are left out) and children. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** The element of the template with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Replace all children of `element`. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== null));
}

/** A small label; `tone` is one of "", "good", "low", "bad", "none". */
export function chip(text, tone = "", title = null) {
  return h("span", { class: `chip ${tone}`, title }, text);
}

/** A table with a header row; cells are strings or nodes; `columns` are [title, class] pairs. */
export function table(columns, rows, caption) {
  const head = columns.map(([title, kind]) => h("th", { scope: "col", class: kind }, title));
  const body = rows.map((row) =>
    h("tr", { class: row.kind ?? null }, (row.cells ?? row).map((cell, i) => h("td", { class: columns[i][1], "data-label": columns[i][0] }, cell))),
  );
  return h(
    "table",
    {},
    h("caption", { class: "sr" }, caption),
    h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, body),
  );
}

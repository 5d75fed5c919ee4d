// Open holds: the holder, the charges, and the time until which the hold can be settled.

import { byId, fill, h, table } from "./dom.js";
import { up, when } from "./numbers.js";
import { until } from "./times.js";
import { charges, lossWords } from "./words.js";

const SHOWN = 100;
const SHOWN_ITEMS = 3;

const COLUMNS = [
  ["Hold", "name"],
  ["Who", ""],
  ["What", "wide"],
  ["Loss held", "wide"],
  ["Until (UTC)", "time"],
];

function who(hold, names) {
  const extra = [
    hold.by ? `requested by ${names.get(hold.by) || hold.by}` : null,
    hold.team ? `team ${hold.team}` : null,
    hold.group ? `group ${hold.group.name}` : null,
  ].filter(Boolean);
  return h(
    "div",
    {},
    h("span", { class: "principal", title: hold.principal }, names.get(hold.principal) || hold.principal),
    extra.length ? h("div", { class: "small muted" }, extra.join(" · ")) : null,
  );
}

function what(hold) {
  const lines = charges(hold.charges);
  const rest = lines.length - SHOWN_ITEMS;
  return h("div", {}, lines.slice(0, SHOWN_ITEMS).map((line) => h("div", {}, line)), rest > 0 ? h("div", { class: "muted" }, `and ${rest} more`) : null);
}

function row(hold, names) {
  const left = h("div", { class: "small muted" }, `${until(hold.expires)}, then all of it stays spent`);
  return [
    h("span", { class: "mono" }, hold.id),
    who(hold, names),
    what(hold),
    lossWords(hold.loss, up),
    h("div", {}, h("time", { datetime: hold.expires, title: hold.expires }, when(hold.expires)), left),
  ];
}

/** Shows the panel, or hides it if there are no open holds. */
export function showHolds({ items }, names) {
  byId("holds-panel").hidden = items.length === 0;
  const rest = items.length - SHOWN;
  fill(
    byId("holds"),
    table(COLUMNS, items.slice(0, SHOWN).map((hold) => row(hold, names)), "Open holds, oldest first"),
    rest > 0 ? h("p", { class: "small muted" }, `and ${rest} newer holds`) : null,
  );
}

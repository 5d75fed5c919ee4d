// The spend by principal and by mechanism: a row for each, with a bar relative to the largest.

import { byId, fill, h } from "./dom.js";
import { up } from "./numbers.js";
import { mechanismKind } from "./words.js";

function amounts(row) {
  const parts = [];
  if (row.rho !== null && row.rho !== undefined) parts.push(`ρ ${up(row.rho)}`);
  if (row.delta) parts.push(`δ ${up(row.delta)}`);
  return parts.join(" · ");
}

function bars(rows, label) {
  const finite = rows.map((row) => row.epsilon).filter((value) => value !== null);
  const most = Math.max(...finite, Number.MIN_VALUE);
  return rows.map((row) => {
    const full = h("div", { class: row.epsilon === 0 ? "bar-full nothing" : "bar-full" });
    full.style.setProperty("width", `${row.epsilon === null ? 100 : (100 * row.epsilon) / most}%`);
    return h(
      "li",
      { class: "share" },
      h("div", { class: "share-head" }, label(row), h("span", { class: "share-value" }, row.epsilon === null ? "no bound" : `ε ${up(row.epsilon)}`)),
      h("div", { class: `bar thin ${row.epsilon === null ? "none" : "plain"}`, "aria-hidden": "true" }, full),
      amounts(row) ? h("div", { class: "small muted" }, amounts(row)) : null,
    );
  });
}

function panel(id, rows, label, holds) {
  if (!rows.length) return fill(byId(id), h("p", { class: "muted" }, "Nothing has been charged yet."));
  const order = (row) => (row.epsilon === null ? Infinity : row.epsilon);
  const sorted = [...rows].sort((a, b) => (order(b) > order(a) ? 1 : order(b) < order(a) ? -1 : 0));
  fill(byId(id), h("ul", { class: "shares" }, bars(sorted, label)), holds ? h("p", { class: "small muted" }, holds) : null);
}

/** Shows both spend panels of a SPEND document. `listed`: another table already lists the principals. */
export function showSpend(spend, { listed = false } = {}) {
  byId("principals").closest(".panel").hidden = listed;
  const principal = (row) =>
    h("span", { class: "share-name", title: row.principal }, row.name || h("span", { class: "mono" }, row.principal));
  const kind = (row) => h("span", { class: "share-name" }, mechanismKind(row.kind));
  panel("principals", spend.by_principal, principal, spend.holds);
  panel("mechanisms", spend.by_mechanism, kind, spend.holds);
}

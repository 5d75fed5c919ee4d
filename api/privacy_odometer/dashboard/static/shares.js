// Shares of a budget that are reserved for teams, as a bar of segments and as a table.

import { get } from "./api.js";
import { byId, fill, h, table } from "./dom.js";
import { down, percent, up } from "./numbers.js";
import { BUDGET_KINDS } from "./kinds.js";
import { budgetKind } from "./words.js";

const COLUMNS = [
  ["Team", "name"],
  ["Share kept", "number"],
  ["Of the limit", "number"],
  ["ε if stopped now", "number"],
];

function segments(entries, free) {
  const all = [...entries.map(([team, share]) => [team, share, "kept"]), ["everybody", free, "free"]].filter(([, share]) => share > 0);
  return h(
    "div",
    { class: "segbar", "aria-hidden": "true" },
    all.map(([name, share, kind]) => {
      const element = h("div", { class: `segment ${kind}`, title: `${name}: ${percent(share)}` }, h("span", {}, name));
      element.style.setProperty("width", `${share * 100}%`);
      return element;
    }),
  );
}

function oneBudget(budget, lost) {
  const entries = Object.entries(budget.reserved).map(([team, share]) => [team, Number(share)]);
  const free = Math.max(0, 1 - entries.reduce((sum, [, share]) => sum + share, 0));
  const { symbol, text } = budgetKind(budget);
  const addsUp = BUDGET_KINDS[budget.kind]?.adds_up;
  const of = (share) => (addsUp === "square" ? Math.sqrt(share) : share); // gdp adds up μ², not μ
  // A share of an (ε, δ) budget has no amount in ε: half of the Rényi loss at one order is more than half of ε.
  const part = (share) => (addsUp === "elsewhere" ? "–" : `${symbol} ${down(of(share) * budget.limit)}`);
  const rows = entries.map(([team, share]) => [h("span", { class: "mono" }, team), percent(share), part(share), lost.has(team) ? up(lost.get(team)) : "–"]);
  rows.push([h("span", { class: "muted" }, "everybody"), percent(free), part(free), ""]);
  return h(
    "div",
    { class: "reserved", "data-budget": budget.name },
    h("p", {}, h("strong", {}, budget.name), " ", h("span", { class: "small muted" }, text)),
    segments(entries, free),
    h("div", { class: "scroll" }, table(COLUMNS, rows, `Shares of ${budget.name}`)),
  );
}

/** Shows the panel, or hides it if no budget reserves shares. */
export async function showShares(root, dataset) {
  const budgets = dataset.budgets.filter((each) => each.reserved);
  byId("shares-panel").hidden = budgets.length === 0;
  if (!budgets.length) return;
  const teams = await get(`${root}/scopes?kind=team&limit=1000`);
  const lost = new Map(teams.items.map((item) => [item.scope.slice("team/".length), item.if_stopped_now]));
  const note =
    "Only the team may spend its share: a charge of anyone else that would need it is refused. A share is a part of the quantity that the budget adds up. " +
    "An (ε, δ) budget adds up Rényi loss at one order, so half of such a budget does not mean half of ε.";
  fill(byId("shares"), budgets.map((each) => oneBudget(each, lost)), h("p", { class: "small muted" }, note));
}

// A table of all scopes of a kind (principals, teams, groups, partitions) with the loss and the tightest budget of each.

import { attempt, get } from "./api.js";
import { forEach, meter, windowNote } from "./budgets.js";
import { byId, fill, h, table } from "./dom.js";
import { down, percent, up } from "./numbers.js";
import { budgetKind, lossWords, scopeWords } from "./words.js";

const PAGE = 20;
const TITLE = { principal: "Principals", team: "Teams", group: "Groups", partition: "Partitions" };
const COLUMNS = (kind) => [
  [kind[0].toUpperCase() + kind.slice(1), "name"],
  ["ε if stopped now", "number"],
  ["Totals", "wide"],
  ["Tightest budget", "wide"],
];

function tightest(left, budgets) {
  if (left === null) return h("span", { class: "muted" }, "not limited");
  const { symbol } = budgetKind({ ...budgets.get(left.budget), ...left });
  const remaining = left.spent === null ? "no bound, nothing left" : `${symbol} ${down(Math.max(0, left.left))} left`;
  const window = windowNote(left);
  return h(
    "div",
    { class: "tightest" },
    h("div", { class: "bar-row" }, meter(left, `Budget ${left.budget} of ${left.scope}`), h("span", { class: "bar-share" }, left.spent === null ? "–" : percent(left.used))),
    h("div", { class: "small" }, h("strong", {}, left.budget), `: ${remaining}`, window ? [", ", window] : null),
  );
}

function row(item, names, budgets) {
  const name = item.scope.slice(item.scope.indexOf("/") + 1);
  return [
    h("span", { class: "scope-name", title: name }, names.get(name) || h("span", { class: "mono" }, name)),
    up(item.if_stopped_now),
    lossWords(item.totals, up),
    tightest(item.tightest, budgets),
  ];
}

/** The kinds of scope to list: those with a budget for each scope, and partitions if there are any. */
export function kindsOf(dataset) {
  if (dataset.composition === "by_unit") return [];
  const kinds = dataset.budgets.filter((each) => /\/\*$/.test(each.scope)).map((each) => each.scope.split("/")[0]);
  if (dataset.composition === "by_partition") kinds.unshift("partition");
  return [...new Set(kinds)];
}

function intro(kind, dataset) {
  const names = dataset.budgets
    .filter((each) => each.scope === `${kind}/*` || (kind === "partition" && each.scope === "dataset"))
    .map((each) => each.name);
  const have = names.length ? `Each ${kind} has ${names.length === 1 ? "the budget" : "the budgets"} ${names.join(", ")} of its own.` : "";
  const what = {
    partition: "A unit always stays in one partition. Charges on all partitions count in each of them.",
    principal: "The number bounds what the principal can have learned about anybody.",
    team: "The number counts the charges of the team's keys.",
    group: "A group is a set of runs that were charged together.",
  }[kind];
  const numbers = names.length ? "A budget counts with its own weights, so its used share is not this ε divided by the limit. Both numbers hold." : "";
  return `${have} ${what} ${numbers}`.trim();
}

/** One panel with pages in the order of the names. */
class Panel {
  constructor(root, kind) {
    this.root = root;
    this.kind = kind;
    this.cursors = [""];
    this.next = null;
    this.place = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Table of ${TITLE[kind].toLowerCase()}` });
    this.intro = h("p", { class: "small muted" });
    this.earlier = h("button", { type: "button", disabled: true, onclick: () => this.turn(this.cursors.slice(0, -1)) }, "Previous");
    this.later = h("button", { type: "button", disabled: true, onclick: () => this.turn([...this.cursors, this.next]) }, "Next");
    const heading = h("h2", { id: `scopes-${kind}` }, TITLE[kind]);
    this.element = h(
      "section",
      { class: "panel scopes", "data-kind": kind, "aria-labelledby": `scopes-${kind}` },
      h("div", { class: "panel-head" }, heading, h("div", { class: "pager", role: "group", "aria-label": `Pages of ${TITLE[kind].toLowerCase()}` }, this.earlier, this.later)),
      this.intro,
      this.place,
    );
  }

  about(dataset, names) {
    this.names = names;
    this.budgets = new Map(dataset.budgets.map((each) => [each.name, each]));
    this.intro.textContent = intro(this.kind, dataset);
  }

  async show() {
    const query = new URLSearchParams({ kind: this.kind, limit: String(PAGE), after: this.cursors.at(-1) });
    const page = await get(`${this.root}/scopes?${query}`);
    const rows = page.items.map((item) => row(item, this.names, this.budgets));
    const nothing = h("p", { class: "muted" }, `No ${this.kind} was charged yet.`);
    fill(this.place, rows.length ? table(COLUMNS(this.kind), rows, `${TITLE[this.kind]}, by name`) : nothing);
    this.next = page.next;
    this.earlier.disabled = this.cursors.length === 1;
    this.later.disabled = page.next === null;
  }

  async turn(to) {
    const before = this.cursors;
    this.cursors = to;
    await attempt(byId("notice"), () =>
      this.show().catch((error) => {
        this.cursors = before;
        throw error;
      }),
    );
  }
}

const panels = new Map();

/** Shows the tables for this dataset. */
export async function showScopes(root, dataset, names) {
  const kinds = kindsOf(dataset);
  for (const kind of kinds) if (!panels.has(kind)) panels.set(kind, new Panel(root, kind));
  const shown = kinds.map((kind) => panels.get(kind));
  for (const panel of shown) panel.about(dataset, names);
  await Promise.all(shown.map((panel) => panel.show()));
  fill(byId("scopes"), shown.map((panel) => panel.element));
}

/** The note below the budgets if some of them are counted for each scope; else null. */
export function eachNote(dataset) {
  const some = dataset.budgets.filter(forEach);
  if (!some.length) return null;
  const where = dataset.composition === "by_unit" ? "look up a unit below" : "the tables below have one row for each";
  const whose = [...new Set(some.map((each) => scopeWords(each.scope) ?? "each partition"))].join(", ");
  return h("p", { class: "small muted" }, `A budget for ${whose} has no total: ${where}.`);
}

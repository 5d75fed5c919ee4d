// The ledger, newest first, a page at a time.

import { attempt, get } from "./api.js";
import { byId, chip, fill, h, table } from "./dom.js";
import { count, exact, when } from "./numbers.js";
import { budgetKind, charges } from "./words.js";

const PAGE = 20;
const SHOWN_ITEMS = 3;
const WORD = { opened: "Opened", charged: "Charged", budget_set: "Budget set", closed: "Closed" };

function happened(entry) {
  if (entry.type === "charged") {
    const lines = charges(entry.command?.charges ?? []);
    const rest = lines.length - SHOWN_ITEMS;
    return [lines.slice(0, SHOWN_ITEMS).map((line) => h("div", {}, line)), rest > 0 ? h("div", { class: "muted" }, `and ${rest} more`) : null];
  }
  if (entry.type === "budget_set") return limit(entry.entry.budget);
  if (entry.type === "opened") {
    const budgets = Object.values(entry.budgets ?? {}).map((each) => h("div", {}, limit(each.budget)));
    return budgets.length ? budgets : "Without a budget: counts and refuses nothing";
  }
  return entry.type === "closed" ? "Nothing more can be charged" : "";
}

function limit(budget) {
  const value = budget.epsilon ?? budget.rho ?? budget.mu;
  return `${budget.name}: ${budgetKind(budget).text}, limit ${exact(Number(value))}`;
}

/** A button with the short hash; pressed, the whole entry follows in a row of its own. */
function raw(document) {
  const toggle = (event) => {
    const button = event.currentTarget;
    const line = button.closest("tr");
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) line.nextSibling.remove();
    else line.after(h("tr", { class: "raw" }, h("td", { colspan: COLUMNS.length }, h("pre", { tabindex: 0 }, JSON.stringify(document, null, 1)))));
  };
  return h(
    "button",
    { class: "hash", type: "button", "aria-expanded": "false", title: document.hash, onclick: toggle },
    document.hash.slice(0, 10),
  );
}

function row({ sequence, hash, entry }, names) {
  const who = entry.principal ?? "";
  return [
    count(sequence),
    h("time", { datetime: entry.time, title: entry.time }, when(entry.time)),
    chip(WORD[entry.type] ?? entry.type, entry.type === "charged" ? "" : "none"),
    h("div", {}, happened(entry)),
    h("span", { class: "principal", title: who }, names.get(who) || who || "–"),
    raw({ hash, ...entry }),
  ];
}

const COLUMNS = [
  ["#", "number"],
  ["Time (UTC)", "time"],
  ["Type", ""],
  ["What", "wide"],
  ["Principal", ""],
  ["Entry hash", "hash"],
];

/** Wire the pager; returns { newest(names) } which shows the newest page. */
export function startLedger(root) {
  let cursors = [null]; // of the pages from the newest to the one shown
  let next = null;
  let names = null; // a promise of a Map from principal to name

  async function show() {
    const query = new URLSearchParams({ order: "desc", limit: String(PAGE) });
    const before = cursors.at(-1);
    if (before !== null) query.set("before", before);
    const [page, known] = await Promise.all([get(`${root}/ledger?${query}`), names]);
    next = page.next;
    const rows = page.items.map((item) => row(item, known));
    fill(byId("ledger"), rows.length ? table(COLUMNS, rows, "Ledger entries, newest first") : h("p", { class: "muted" }, "No entries."));
    byId("newer").disabled = cursors.length === 1;
    byId("older").disabled = next === null;
  }

  async function turn(to) {
    const held = cursors;
    cursors = to;
    await attempt(byId("notice"), () =>
      show().catch((error) => {
        cursors = held;
        throw error;
      }),
    );
  }

  byId("older").addEventListener("click", () => turn([...cursors, next]));
  byId("newer").addEventListener("click", () => turn(cursors.slice(0, -1)));
  return {
    newest(known) {
      names = known;
      cursors = [null];
      return show();
    },
  };
}

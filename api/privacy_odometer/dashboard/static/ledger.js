// The ledger in pages, newest entry first.

import { attempt, get } from "./api.js";
import { byId, chip, fill, h, table } from "./dom.js";
import { count, exact, when } from "./numbers.js";
import { budgetKind, charges, mechanismKind, scopeWords, windowWord } from "./words.js";

const PAGE = 20;
const SHOWN_ITEMS = 3;
const SHOWN_NAMES = 5;
const WORD = {
  opened: "Opened",
  charged: "Charged",
  held: "Held",
  settled: "Settled",
  budget_set: "Budget set",
  partitions_added: "Partitions added",
  synced: "Budgets copied",
  derived: "Derived",
  session_closed: "Session closed",
  carried: "Open items carried",
  closed: "Closed",
  frozen: "Frozen",
  unfrozen: "Unfrozen",
};
const TONE = { charged: "", held: "low", settled: "", frozen: "bad", unfrozen: "low" };

/** The first few names of a list, and the number of the others. */
function some(names, what) {
  const rest = names.length - SHOWN_NAMES;
  return `${what} ${names.slice(0, SHOWN_NAMES).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
}

/** The partitions, units, group and team of a charge, and the caller if it is not the principal. */
function about({ command = {}, team, by }, names) {
  const { partitions, units, group } = command;
  const parts = [
    partitions === "all" ? "on all partitions" : partitions ? some(partitions, "on partitions") : null,
    units ? some(units, units.length === 1 ? "on unit" : `on ${count(units.length)} units:`) : null,
    group ? `group ${group.name}, ${count(group.runs)} runs together` : null,
    team ? `team ${team}` : null,
    by ? `requested by ${names.get(by) || by} on the principal's behalf` : null,
  ].filter(Boolean);
  return parts.length ? h("div", { class: "small muted" }, parts.join(" · ")) : null;
}

/** One answer of a session: in a run of a sparse vector, or a query on votes (each query is a run). */
function answer({ above, run }, items) {
  if (items.every((item) => item.mechanism.kind === "above_threshold")) return `above in run ${count(run)}`;
  return `query ${count(run)} ${above ? "answered" : "without consensus, not answered"}`;
}

/** The session that a charge opens, or the answer that it pays for; null without a session. */
function step({ session, charges: items }) {
  if (!session) return null;
  const { open, id, last } = session;
  const said = open
    ? `Opens a session: ${mechanismKind(open.kind)}`
    : `Session ${id}: ${answer(session, items)}${last ? ", its last" : ""}`;
  return h("div", { class: "small muted" }, said);
}

function charged(entry, names) {
  const lines = charges(entry.command?.charges ?? []);
  const rest = lines.length - SHOWN_ITEMS;
  return [
    step(entry.command ?? {}),
    lines.slice(0, SHOWN_ITEMS).map((line) => h("div", {}, line)),
    rest > 0 ? h("div", { class: "muted" }, `and ${rest} more`) : null,
    about(entry, names),
  ];
}

function settled(entry, names) {
  const items = entry.held?.command?.charges ?? [];
  const used = entry.used.map((number, i) => `${count(number)} of ${count(items[i]?.count ?? "?")} used`);
  const nothing = entry.used.every((number) => number === 0);
  return [
    h("div", {}, `Hold ${entry.hold}: ${nothing ? "nothing was used, and all of it comes back" : used.join(", ")}`),
    about(entry.held ?? {}, names),
  ];
}

const HAPPENED = {
  charged,
  held: (entry, names) => [charged(entry, names), h("div", { class: "small muted" }, `spent now; may be settled for less until ${when(entry.expires)} UTC`)],
  settled,
  budget_set: (entry) => limit(entry.entry.budget),
  opened: (entry) => {
    const budgets = Object.values(entry.budgets ?? {}).map((each) => h("div", {}, limit(each.budget)));
    return budgets.length ? budgets : "No budget: counts the loss and refuses nothing";
  },
  partitions_added: (entry) => some(entry.partitions, "New:"),
  synced: (entry) => (entry.closed ? "The dataset was closed" : "The budgets of the dataset that apply from here on"),
  session_closed: (entry) => `Session ${entry.session}: ${count(entry.above)} above its threshold; its charges stay`,
  carried: (entry) => `From here on, budgets with a window count the open items: ${count(Object.keys(entry.holds).length)} holds, ${count(Object.keys(entry.sessions).length)} sessions`,
  derived: (entry, names) => [
    h("div", {}, `“${entry.command.description}”`),
    h("div", { class: "small muted" }, `made from entry ${count(entry.command.parent)}; no charge`),
    about({ by: entry.by }, names),
  ],
  closed: () => "No further charges",
  frozen: (entry) => `The ledger history was rolled back: entry ${count(entry.seen[0])} is missing or differs. No charges are accepted from here on`,
  unfrozen: (entry) => `A person accepted the loss of entries, up to entry ${count(entry.seen[0])}: “${entry.reason}”`,
};

function happened(entry, names) {
  return HAPPENED[entry.type]?.(entry, names) ?? "";
}

function limit(budget) {
  const value = budget.epsilon ?? budget.rho ?? budget.mu;
  const whose = scopeWords(budget.scope ?? "dataset");
  const parts = [`${budget.name}: ${budgetKind(budget).text}, limit ${exact(Number(value))}`, whose ? `for ${whose}` : null, budget.window ? windowWord(budget.window) : null];
  return parts.filter(Boolean).join(", ");
}

/** A button with the short hash. It shows or hides the whole entry in a row below. */
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
    chip(WORD[entry.type] ?? entry.type.replaceAll("_", " "), TONE[entry.type] ?? "none"),
    h("div", {}, happened(entry, names)),
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

/** Connects the pager. Returns { newest(names) }, which shows the newest page. */
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

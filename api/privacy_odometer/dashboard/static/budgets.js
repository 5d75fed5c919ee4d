// One budget as a bar with its numbers as text. Colour never carries a meaning alone.

import { chip, h } from "./dom.js";
import { down, exact, percent, up, when } from "./numbers.js";
import { until } from "./times.js";
import { budgetKind, scopeWords, windowWord } from "./words.js";

const LOW_FROM = 0.8;
const FULL_FROM = 0.999; // shown as 100 %: the rest is too small for a useful charge

/** Whether each of many scopes has this budget, so that the budget has no total. */
export function forEach(budget) {
  return budget.used === null || budget.used === undefined;
}

/** The state of a budget: a tone for the colour, and a word. */
export function standing(budget) {
  if (forEach(budget)) return { tone: "each", word: "One for each" };
  if (budget.spent === null) return { tone: "none", word: "No bound" };
  if (budget.left <= 0 || budget.used > FULL_FROM) return { tone: "bad", word: "Exhausted" };
  if (budget.used >= LOW_FROM) return { tone: "low", word: "Running low" };
  return { tone: "good", word: "Within budget" };
}

/** The used share of a budget, 0 to 1, for sorting; 0 if each scope has its own count. */
export function fullness(budget) {
  return forEach(budget) ? 0 : budget.spent === null ? 1 : budget.used;
}

const clamped = (share) => Math.min(1, Math.max(0, share));

/** [used for good, held], each as a share of the limit. */
function shares(budget) {
  if (budget.spent === null) return [1, 0];
  const used = clamped(budget.used);
  const held = budget.held && budget.spent > 0 ? used * clamped(budget.held / budget.spent) : 0;
  return [used - held, held];
}

function part(kind, share) {
  const element = h("div", { class: share > 0 ? kind : `${kind} nothing` });
  element.style.setProperty("width", `${share * 100}%`);
  return element;
}

/** The bar of a budget. The lighter part is the amount that open holds may give back. */
export function meter(budget, label) {
  const [used, held] = shares(budget);
  const words = budget.spent === null ? "no bound" : `${percent(used + held)} used`;
  return h(
    "div",
    {
      class: `bar ${standing(budget).tone}`,
      role: "meter",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": Math.min(100, Math.ceil((used + held) * 1000) / 10),
      "aria-valuetext": held > 0 ? `${words}, of which ${percent(held)} is held` : words,
    },
    part("bar-full", used),
    held > 0 ? part("bar-held", held) : null,
  );
}

function figure(label, value, kind = "") {
  return h("div", { class: `figure ${kind}` }, h("dt", {}, label), h("dd", {}, value));
}

/** For example "daily, renews in 3 h"; null for a lifetime budget. */
export function windowNote(budget) {
  if (!budget.window) return null;
  const words = windowWord(budget.window);
  if (!budget.renews) return words;
  return h("time", { datetime: budget.renews, title: `${when(budget.renews)} UTC` }, `${words}, renews ${until(budget.renews)}`);
}

function note(budget) {
  if (!forEach(budget) && budget.spent === null) return "A charge has no bound in this budget's quantity, so no further charge is accepted.";
  return budget.covers && budget.covers !== "all entries" ? `Covers ${budget.covers}.` : null;
}

function figures(budget, symbol) {
  const with_ = (value) => (value === "no bound" ? value : `${symbol} ${value}`);
  const limit = figure("Limit", with_(exact(budget.limit)));
  if (forEach(budget)) return [limit];
  return [
    figure("Spent", with_(up(budget.spent)), "spent"),
    budget.held ? figure("of which held", with_(up(budget.held)), "held") : null,
    figure("Left", with_(down(budget.spent === null ? 0 : Math.max(0, budget.left ?? 0))), "left"),
    limit,
  ];
}

/** Explains a reading that is above the limit of budgets which are not exceeded; null if there is none. */
export function aboveLimits(epsilon, delta, budgets) {
  const kept = budgets.filter((each) => ["pure", "approximate"].includes(each.kind) && each.spent !== null && each.spent !== undefined && each.spent <= each.limit && each.limit < epsilon);
  if (!kept.length) return null;
  const named = kept.map((each) => {
    const at = each.kind === "approximate" && Number(each.delta) !== delta ? ` at δ = ${exact(Number(each.delta))}` : "";
    return `${each.name ?? each.budget} (ε ${up(each.spent)} of ${exact(each.limit)}${at})`;
  });
  return `This is above the limit of ${named.join(" and ")}, but the limit is kept. Both numbers are true: the budget counts with weights chosen for its own limit, and this reading with the weights of the dataset.`;
}

/** A row for one BUDGET_STATE document. `partitioned`: a budget of the dataset applies to each partition. */
export function budgetRow(budget, { detailed = false, partitioned = false } = {}) {
  const { tone, word } = standing(budget);
  const { symbol, text } = budgetKind(budget);
  const each = forEach(budget);
  const whose = scopeWords(budget.scope ?? "dataset") ?? (partitioned ? "each partition" : null);
  const share = h("span", { class: "bar-share" }, budget.spent === null ? "–" : percent(budget.used ?? 0));
  const more = detailed ? note(budget) : null;
  const window = windowNote(budget);
  return h(
    "div",
    { class: "budget", "data-budget": budget.name },
    h(
      "div",
      { class: "budget-head" },
      h("span", { class: "budget-name" }, budget.name),
      h("span", { class: "muted small" }, text),
      whose ? h("span", { class: "small scope" }, `for ${whose}`) : null,
      window ? h("span", { class: "small window" }, window) : null,
      chip(word, tone),
    ),
    each ? null : h("div", { class: "bar-row" }, meter(budget, `Budget ${budget.name}`), share),
    h("dl", { class: "figures" }, figures(budget, symbol)),
    more ? h("p", { class: "small muted" }, more) : null,
  );
}

/** A row for one scope's budget. `left` is a LEFT document; `budgets` has the dataset's budgets by name. */
export function leftRow(left, budgets) {
  return budgetRow({ ...budgets.get(left.budget), held: null, ...left, scope: "dataset", name: left.budget });
}

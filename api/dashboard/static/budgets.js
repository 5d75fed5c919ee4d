// One budget as a bar with its numbers in words: colour never says anything alone.

import { chip, h } from "./dom.js";
import { down, exact, percent, up } from "./numbers.js";
import { budgetKind } from "./words.js";

const LOW_FROM = 0.8;

/** Where a budget stands: its tone and the word for it. */
export function standing(budget) {
  if (budget.spent === null) return { tone: "none", word: "No bound" };
  if (budget.left <= 0 || budget.used >= 1) return { tone: "bad", word: "Spent" };
  if (budget.used >= LOW_FROM) return { tone: "low", word: "Running low" };
  return { tone: "good", word: "Within budget" };
}

function meter(budget, tone, label) {
  const share = budget.spent === null ? 1 : Math.min(1, Math.max(0, budget.used ?? 0));
  const full = h("div", { class: "bar-full" });
  full.style.setProperty("width", `${share * 100}%`);
  return h(
    "div",
    {
      class: `bar ${tone}`,
      role: "meter",
      "aria-label": label,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": Math.min(100, Math.ceil(share * 1000) / 10),
      "aria-valuetext": budget.spent === null ? "no bound" : `${percent(share)} used`,
    },
    full,
  );
}

function figure(label, value, kind = "") {
  return h("div", { class: `figure ${kind}` }, h("dt", {}, label), h("dd", {}, value));
}

/** A row for one BUDGET_STATE document. */
export function budgetRow(budget, { detailed = false } = {}) {
  const { tone, word } = standing(budget);
  const { symbol, text } = budgetKind(budget);
  const with_ = (value) => (value === "no bound" ? value : `${symbol} ${value}`);
  const left = budget.spent === null ? 0 : Math.max(0, budget.left ?? 0);
  const share = h("span", { class: "bar-share" }, budget.spent === null ? "–" : percent(budget.used ?? 0));
  const note =
    budget.spent === null
      ? "A charge has no bound in this budget's quantity, so nothing more is admitted."
      : budget.covers && budget.covers !== "all entries"
        ? `Covers ${budget.covers}.`
        : null;
  return h(
    "div",
    { class: "budget", "data-budget": budget.name },
    h("div", { class: "budget-head" }, h("span", { class: "budget-name" }, budget.name), h("span", { class: "muted small" }, text), chip(word, tone)),
    h("div", { class: "bar-row" }, meter(budget, tone, `Budget ${budget.name}`), share),
    h(
      "dl",
      { class: "figures" },
      figure("Spent", with_(up(budget.spent)), "spent"),
      figure("Left", with_(down(left)), "left"),
      figure("Limit", with_(exact(budget.limit))),
    ),
    detailed && note ? h("p", { class: "small muted" }, note) : null,
  );
}

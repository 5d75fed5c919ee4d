// Words for the values that the API sends: kinds of budget, mechanisms, readings, entries.

import { BUDGET_KINDS } from "./kinds.js";
import { count, exact } from "./numbers.js";

const ADJACENCY = { add_remove: "add or remove one", replace_one: "replace one", zero_out: "zero out one" };

export function adjacency(name) {
  return ADJACENCY[name] ?? name;
}

/** How the charges of a dataset compose, in words. */
export function composition(dataset) {
  if (dataset.composition === "by_partition") {
    return `by partition, ${count(dataset.partitions.length)} of them`;
  }
  return dataset.composition === "by_unit" ? `by unit, over ${count(dataset.shards)} shards` : "sequentially";
}

/** The quantity that a budget limits: its symbol and its name. */
export function budgetKind(budget) {
  const kind = BUDGET_KINDS[budget.kind];
  if (kind === undefined) return { symbol: "", text: budget.kind };
  const fields = [...kind.words.matchAll(/\{(\w+)\}/g)].map(([, field]) => field);
  if (fields.some((field) => budget[field] === undefined)) return { symbol: kind.symbol, text: kind.short };
  const text = kind.words.replace(/\{(\w+)\}/g, (_, field) => exact(Number(budget[field])));
  return { symbol: kind.symbol, text };
}

/** The scope of a budget, for example "each principal" or "team ads"; null for the whole dataset. */
export function scopeWords(scope) {
  const [kind, name] = scope.split("/");
  if (name === undefined) return null;
  return name === "*" ? `each ${kind}` : `${kind} ${name}`;
}

const WINDOW = { hour: "hourly", day: "daily", week: "weekly", month: "monthly" };

export function windowWord(window) {
  return WINDOW[window] ?? `per ${window}`;
}

/** A LOSS document in one line. `show` rounds its numbers: up for spent amounts. */
export function lossWords(loss, show) {
  const parts = [];
  if (loss.pure) parts.push(`pure ε ${show(loss.pure)}`);
  if (loss.rho) parts.push(`ρ ${show(loss.rho)}`);
  if (loss.mu) parts.push(`μ ${show(loss.mu)}`);
  if (loss.delta) parts.push(`δ ${show(loss.delta)}`);
  if (parts.length) return parts.join(" · ");
  return loss.pure === 0 ? "nothing" : "no bound in ε, ρ or μ";
}

const MECHANISM = {
  gaussian: "Gaussian",
  laplace: "Laplace",
  randomized_response: "Randomised response",
  pure: "Pure ε guarantee",
  approximate: "(ε, δ) guarantee",
  zcdp: "zCDP guarantee",
  gdp: "Gaussian DP guarantee",
  renyi_curve: "Rényi curve",
  non_private: "Not private",
  poisson_subsampled: "Poisson-subsampled",
  sparse_vector: "Sparse vector",
  confident_gnmax: "Confident-GNMax",
};

export function mechanismKind(kind) {
  return MECHANISM[kind] ?? kind.replaceAll("_", " ");
}

/** A number for display. The API sends numbers; the ledger has them as text, in shortest decimal form. */
function amount(value) {
  return typeof value === "string" && value !== "" && Number.isFinite(Number(value)) ? exact(Number(value)) : value;
}

function parameter(name, value) {
  if (Array.isArray(value) && value[0]?.kind) return value.map(mechanism).join(" + ");
  if (Array.isArray(value)) return `${value.length} ${name}`;
  if (typeof value === "object") return value.kind ? mechanism(value) : list(value);
  if (name === "what") return `“${value}”`;
  return `${name.replaceAll("_", " ")} ${typeof value === "number" ? exact(value) : amount(value)}`;
}

/** A mechanism document in one line: its kind and every parameter. */
export function mechanism(document) {
  const { kind, base, ...rest } = document;
  const inner = base ? ` ${mechanism(base)}` : "";
  const given = list(rest);
  return `${mechanismKind(kind)}${inner}${given ? `, ${given}` : ""}`;
}

function list(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined);
  return given.map(([name, value]) => parameter(name, value)).join(", ");
}

/** A charge's items in one line each. */
export function charges(items) {
  return items.map((item) => `${count(item.count ?? 1)} × ${mechanism(item.mechanism)}`);
}

// The order here is the order of the table: readings without conditions come first.
const READING = {
  if_stopped_now: ["If stopped now"],
  odometer: ["Odometer"],
  guarantee: ["Guarantee"],
  zcdp: ["zCDP total"],
  gdp: ["Gaussian DP total"],
  fixed_plan: ["Fixed plan", "Conditional"],
  fixed_plan_pld: ["Fixed plan, by PLD", "Conditional"],
  basic: ["Basic composition", "Comparison"],
  advanced: ["Advanced composition", "Comparison"],
};
const SYMBOL = { epsilon: "ε", rho: "ρ", mu: "μ", delta: "δ" };

/** The title of a reading, the mark of a conditional one, and the place in the table. */
export function reading({ name, what_if: whatIf }) {
  const [title, mark = null] = READING[name] ?? [name.replaceAll("_", " ")];
  const place = Object.keys(READING).indexOf(name);
  return { title, mark: whatIf ? "What if" : mark, place: place < 0 ? Infinity : place };
}

export function symbol(quantity) {
  return SYMBOL[quantity] ?? quantity;
}

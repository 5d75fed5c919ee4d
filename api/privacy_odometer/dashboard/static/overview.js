// The overview: every dataset with its budgets. Among the loaded ones, the fullest comes first.

import { attempt, get, Problem, refreshing } from "./api.js";
import { budgetRow, fullness, standing } from "./budgets.js";
import { byId, chip, fill, h } from "./dom.js";
import { explained, frozenShards, word as problemWord } from "./frozen.js";
import { count, exact } from "./numbers.js";
import { adjacency } from "./words.js";

const PAGE = 100;
const FILTER_FROM = 5;
const state = { datasets: [], next: null };

/** For sorting: problems that need a person come first, then the fullest budget. */
function urgency(dataset) {
  if (dataset.problem) return 3;
  if (dataset.frozen_shards?.length) return 2;
  return Math.max(0, ...dataset.budgets.map(fullness));
}

const address = (dataset) => `/datasets/${encodeURIComponent(dataset.name)}`;

/** The card of a dataset that cannot be read: the reason, and what to do. */
function problemCard({ name, problem }) {
  return h(
    "article",
    { class: "panel card trouble", "data-dataset": name },
    h(
      "div",
      { class: "card-head" },
      h("h2", {}, h("a", { href: address({ name }), class: "mono" }, name)),
      h("div", { class: "chips" }, chip(problemWord(problem), "bad")),
    ),
    h("div", { class: "card-budgets" }, explained(name, problem, { heading: "h3" })),
  );
}

function card(dataset) {
  if (dataset.problem) return problemCard(dataset);
  const url = address(dataset);
  const partitioned = dataset.composition === "by_partition";
  const budgets = dataset.odometer_only
    ? [h("p", { class: "muted small" }, "This dataset has no budget: it counts the loss and refuses nothing.")]
    : dataset.budgets.map((budget) => budgetRow(budget, { partitioned }));
  const own = `${count(dataset.sequence)} ${dataset.sequence === 1 ? "entry" : "entries"}`;
  const entries = dataset.composition === "by_unit" ? `${own}, and the charges in its shards` : own;
  return h(
    "article",
    { class: "panel card" },
    h(
      "div",
      { class: "card-head" },
      h("h2", {}, h("a", { href: url, class: "mono" }, dataset.name)),
      h("p", { class: "small muted" }, `Per ${dataset.unit} · ${adjacency(dataset.adjacency)}`),
      h("p", { class: "small muted" }, `δ ${exact(dataset.delta)} · ${entries}`),
      h(
        "div",
        { class: "chips" },
        dataset.closed ? chip("Closed", "none", "No further charges") : null,
        dataset.odometer_only ? chip("Odometer only") : null,
        partitioned ? chip("By partition", "", "The partitions are disjoint, and each has its own odometer") : null,
        dataset.composition === "by_unit" ? chip("By unit", "", "Each unit has its own odometer") : null,
        dataset.open_holds ? chip(`${count(dataset.open_holds)} held`, "low", "Open holds: spent now, and may be settled for less") : null,
      ),
    ),
    h("div", { class: "card-budgets" }, frozenShards(dataset), budgets),
  );
}

function empty() {
  const example =
    "odometer dataset create patients --unit person \\\n  --adjacency add_remove --delta 1e-6 \\\n  --budget lifetime:approximate:epsilon=3,delta=1e-6";
  return h(
    "div",
    { class: "panel message" },
    h("h2", {}, "No datasets yet"),
    h("p", {}, "A dataset is the data to protect. Create one with its budget, then charge every release to it:"),
    h("pre", {}, h("code", {}, example)),
    h("p", { class: "small muted" }, "", h("code", {}, "odometer dataset create --help"), " lists every kind of budget; the ", h("a", { href: "/docs" }, "API"), " does the same over HTTP."),
  );
}

function summary() {
  const all = state.datasets.filter((d) => !d.problem);
  const troubled = state.datasets.filter((d) => d.problem);
  const of = (tone) => all.filter((d) => d.budgets.some((b) => standing(b).tone === tone)).length;
  const total = state.datasets.length;
  const parts = [`${count(total)}${state.next ? "+" : ""} ${total === 1 ? "dataset" : "datasets"}`];
  const frozen = troubled.filter((d) => problemWord(d.problem) === "Frozen").length;
  if (frozen) parts.push(`${frozen} frozen`);
  if (troubled.length > frozen) parts.push(`${troubled.length - frozen} damaged`);
  if (of("low")) parts.push(`${of("low")} running low`);
  if (of("bad")) parts.push(`${of("bad")} with an exhausted budget`);
  if (of("none")) parts.push(`${of("none")} without a bound`);
  return parts.join(" · ");
}

function show() {
  const wanted = byId("filter").value.trim().toLowerCase();
  const shown = state.datasets
    .filter((dataset) => dataset.name.includes(wanted))
    .sort((a, b) => urgency(b) - urgency(a) || a.name.localeCompare(b.name));
  byId("summary").textContent = summary();
  byId("filter").closest("label").hidden = state.datasets.length < FILTER_FROM;
  byId("more").hidden = state.next === null;
  const nothing = state.datasets.length ? h("p", { class: "muted" }, "No dataset has this text in its name.") : empty();
  fill(byId("datasets"), shown.length ? shown.map(card) : nothing);
  byId("datasets").setAttribute("aria-busy", "false");
}

/** Adds the held amounts to the budgets. The list has none, so each dataset with open holds is read. */
async function showHeld(datasets) {
  const waiting = datasets.filter((each) => each.open_holds && !each.problem);
  const ask = async () => {
    for (let dataset = waiting.pop(); dataset; dataset = waiting.pop()) {
      try {
        dataset.budgets = (await get(`/v1/datasets/${encodeURIComponent(dataset.name)}/odometer`)).budgets;
      } catch (error) {
        if (!(error instanceof Problem)) throw error; // its bars show no held part, and its own page shows the problem
      }
    }
  };
  if (!waiting.length) return;
  await Promise.all([ask(), ask(), ask(), ask()]);
  show();
}

async function load(after = null) {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (after !== null) query.set("after", after);
  try {
    const page = await get(`/v1/datasets?${query}`);
    state.datasets = after === null ? page.items : [...state.datasets, ...page.items];
    state.next = page.next;
    show();
    await showHeld(page.items);
  } catch (error) {
    if (!state.datasets.length) byId("summary").textContent = "The datasets could not be read.";
    byId("datasets").setAttribute("aria-busy", "false");
    throw error;
  }
}

byId("filter").addEventListener("input", show);
byId("more").addEventListener("click", () => attempt(byId("notice"), () => load(state.next)));
await refreshing(byId("refresh"), byId("notice"), () => load());

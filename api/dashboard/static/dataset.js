// One dataset: reads everything at once, then each part draws itself.

import { get, refreshing } from "./api.js";
import { budgetRow } from "./budgets.js";
import { byId, chip, fill, h } from "./dom.js";
import { showHistory } from "./history.js";
import { startLedger } from "./ledger.js";
import { count, exact, when } from "./numbers.js";
import { showHero, showReadings, startDelta } from "./readings.js";
import { showSpend } from "./spend.js";
import { adjacency } from "./words.js";

const HISTORY_POINTS = 200;
const name = byId("content").dataset.dataset;
const root = `/v1/datasets/${encodeURIComponent(name)}`;

function facts(dataset) {
  const fact = (label, value) => h("span", { class: "fact" }, h("span", { class: "muted" }, label), " ", value);
  return [
    fact("Protects", `each ${dataset.unit}`),
    fact("Neighbours", adjacency(dataset.adjacency)),
    fact("δ", exact(dataset.delta)),
    fact("Entries", count(dataset.sequence)),
    fact("Opened", h("time", { datetime: dataset.created, title: dataset.created }, when(dataset.created).slice(0, 10))),
    dataset.closed ? chip("Closed", "none", "Nothing more can be charged") : null,
    dataset.odometer_only ? chip("Odometer only") : null,
  ];
}

function budgets(dataset) {
  if (dataset.budgets.length) return dataset.budgets.map((budget) => budgetRow(budget, { detailed: true }));
  return h("p", { class: "muted" }, "No budget: this dataset counts what is spent and refuses nothing.");
}

const ledger = startLedger(root);
startDelta(root);

async function load() {
  const spend = get(`${root}/spend`);
  const names = spend.then((body) => new Map(body.by_principal.map((row) => [row.principal, row.name])));
  const [dataset, odometer, history, spent] = await Promise.all([
    get(root),
    get(`${root}/odometer`),
    get(`${root}/history?points=${HISTORY_POINTS}`),
    spend,
    ledger.newest(names),
  ]);
  byId("content").hidden = false; // before drawing: a chart needs its width
  fill(byId("facts"), facts(dataset));
  fill(byId("budgets"), budgets(dataset));
  showHero(odometer);
  showReadings(odometer);
  showSpend(spent);
  showHistory(history);
  byId("updated").textContent = `Read at ${when(new Date().toISOString()).slice(11)} UTC`;
}

await refreshing(byId("refresh"), byId("notice"), async () => {
  try {
    await load();
  } catch (error) {
    if (byId("content").hidden) fill(byId("facts"), h("span", { class: "muted" }, "Nothing could be read."));
    throw error;
  }
});

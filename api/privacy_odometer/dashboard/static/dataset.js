// The page of one dataset: reads everything at once, then draws each part.

import { get, Problem, refreshing } from "./api.js";
import { budgetRow } from "./budgets.js";
import { byId, chip, fill, h } from "./dom.js";
import { explained, frozenShards, needsAPerson, noHolds } from "./frozen.js";
import { showHistory } from "./history.js";
import { showHolds } from "./holds.js";
import { startLedger } from "./ledger.js";
import { count, exact, when } from "./numbers.js";
import { showHero, showNoHero, showReadings, startDelta } from "./readings.js";
import { eachNote, kindsOf, showScopes } from "./scopes.js";
import { showShares } from "./shares.js";
import { showSpend } from "./spend.js";
import { showUnits, startUnits } from "./units.js";
import { adjacency, composition } from "./words.js";

const HISTORY_POINTS = 200;
const name = byId("content").dataset.dataset;
const root = `/v1/datasets/${encodeURIComponent(name)}`;

function facts(dataset) {
  const fact = (label, value) => h("span", { class: "fact" }, h("span", { class: "muted" }, label), " ", value);
  return [
    fact("Protects", `each ${dataset.unit}`),
    fact("Neighbours", adjacency(dataset.adjacency)),
    fact("δ", exact(dataset.delta)),
    dataset.composition === "sequential" ? null : fact("Composes", composition(dataset)),
    dataset.composition === "by_unit" ? fact("Entries", `${count(dataset.sequence)}, and the charges in the shards`) : fact("Entries", count(dataset.sequence)),
    fact("Opened", h("time", { datetime: dataset.created, title: dataset.created }, when(dataset.created).slice(0, 10))),
    dataset.closed ? chip("Closed", "none", "Nothing more can be charged") : null,
    dataset.odometer_only ? chip("Odometer only") : null,
  ];
}

function budgets(dataset, states) {
  const partitioned = dataset.composition === "by_partition";
  if (states.length) return [states.map((budget) => budgetRow(budget, { detailed: true, partitioned })), eachNote(dataset)];
  return h("p", { class: "muted" }, "No budget: this dataset counts the loss and refuses nothing.");
}

const ledger = startLedger(root);
startDelta(root);
startUnits(root);

/** Shows the parts of the page for which this dataset has numbers. */
function arrange({ readable, byUnit }) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const kinds = part.dataset.part.split(" ");
    part.hidden = !readable || (byUnit && kinds.includes("whole")) || (!byUnit && kinds.includes("units"));
  }
  byId("content").hidden = false; // before drawing: a chart needs its width
}

/** Shows the reason why a dataset cannot be read, and its entries. */
async function showTrouble(problem) {
  arrange({ readable: false, byUnit: false });
  fill(byId("facts"), chip("No charges accepted", "bad"));
  fill(byId("trouble"), explained(name, problem));
  await ledger.newest(Promise.resolve(new Map()));
}

async function showUnitsOnly(dataset) {
  await ledger.newest(Promise.resolve(new Map()));
  arrange({ readable: true, byUnit: true });
  fill(byId("budgets"), budgets(dataset, dataset.budgets));
  showNoHero();
  showUnits(dataset);
  return showUnitsHolds();
}

/** Shows the open holds of all units, or the reason why not: a shard with some of them is frozen. */
async function showUnitsHolds() {
  try {
    showHolds(await get(`${root}/holds`), new Map());
    return null;
  } catch (problem) {
    if (!(problem instanceof Problem) || !needsAPerson(problem)) throw problem;
    showHolds({ items: [] }, new Map());
    return noHolds(problem);
  }
}

async function showWhole(dataset) {
  const spend = get(`${root}/spend`);
  const names = spend.then((body) => new Map(body.by_principal.map((row) => [row.principal, row.name])));
  const [odometer, history, spent, holds, known] = await Promise.all([
    get(`${root}/odometer`),
    get(`${root}/history?points=${HISTORY_POINTS}`),
    spend,
    dataset.open_holds ? get(`${root}/holds`) : { items: [] },
    names,
    ledger.newest(names),
  ]);
  arrange({ readable: true, byUnit: false });
  fill(byId("budgets"), budgets(dataset, odometer.budgets));
  showHero(odometer, { partitioned: dataset.composition === "by_partition" });
  showReadings(odometer);
  showSpend(spent, { listed: kindsOf(dataset).includes("principal") });
  showHolds(holds, known);
  showHistory(history, odometer.budgets);
  await Promise.all([showScopes(root, dataset, known), showShares(root, dataset)]);
  return null;
}

async function load() {
  let dataset;
  try {
    dataset = await get(root);
  } catch (problem) {
    if (!(problem instanceof Problem) || !needsAPerson(problem)) throw problem;
    await showTrouble(problem);
    return;
  }
  const missing = await (dataset.composition === "by_unit" ? showUnitsOnly(dataset) : showWhole(dataset));
  fill(byId("facts"), facts(dataset));
  fill(byId("trouble"), [frozenShards(dataset), missing]);
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

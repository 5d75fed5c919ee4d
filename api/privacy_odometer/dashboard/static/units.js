// Looks up the odometer of one unit, in a dataset that composes by unit.

import { get, Problem } from "./api.js";
import { aboveLimits, leftRow } from "./budgets.js";
import { byId, fill, h } from "./dom.js";
import { exact, up } from "./numbers.js";
import { lossWords } from "./words.js";

const NAME = /^[A-Za-z0-9_.:-]{1,64}$/;
let budgets = new Map();

/** Passes the dataset's budgets to the form. */
export function showUnits(dataset) {
  budgets = new Map(dataset.budgets.map((each) => [each.name, each]));
}

function found(unit, odometer) {
  const now = odometer.readings.find((each) => each.name === "if_stopped_now");
  const why = aboveLimits(now.value ?? 0, odometer.delta, odometer.left);
  return [
    h("h3", { class: "mono" }, unit),
    (odometer.notes ?? []).map((note) => h("p", { class: "small" }, note)),
    h("p", {}, `ε ${up(now.value)} if stopped now, at δ = ${exact(odometer.delta)}`, h("span", { class: "muted small" }, ` · ${lossWords(odometer.totals, up)}`)),
    why ? h("p", { class: "small above-note" }, why) : null,
    odometer.left.map((left) => leftRow(left, budgets)),
    h("p", { class: "small muted" }, now.holds),
  ];
}

/** Connects the form. Units are not listed: the reader enters the id of one. */
export function startUnits(root) {
  byId("unit-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const unit = byId("unit").value.trim();
    const error = byId("unit-error");
    const wrong = NAME.test(unit) ? "" : "A unit's id has 1 to 64 characters: letters, digits, and . _ : -";
    try {
      if (!wrong) {
        const scope = encodeURIComponent(`unit/${unit}`);
        fill(byId("unit-reading"), found(unit, await get(`${root}/odometer?scope=${scope}`)));
      }
      error.textContent = wrong;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      error.textContent = problem.text();
    }
    error.hidden = error.textContent === "";
    byId("unit").toggleAttribute("aria-invalid", !error.hidden);
    if (!error.hidden) fill(byId("unit-reading"));
  });
}

// The odometer's readings: the main one, and the table that says when each number holds.

import { get, Problem } from "./api.js";
import { aboveLimits } from "./budgets.js";
import { byId, chip, fill, h, table } from "./dom.js";
import { exact, up, upOnWheels } from "./numbers.js";
import { lossWords, reading, symbol } from "./words.js";

/** The digits on wheels. The wheels are decoration: the label for screen readers has the number. */
function wheels(text) {
  if (!/^[0-9.]+$/.test(text)) return h("div", { class: "wheels plain" }, h("span", {}, text));
  const cells = [];
  let fraction = false;
  for (const character of text) {
    if (character === ".") {
      cells.push(h("span", { class: "point" }, "."));
      fraction = true;
    } else cells.push(h("span", { class: fraction ? "wheel fraction" : "wheel" }, character));
  }
  return h("div", { class: "wheels", "aria-hidden": "true" }, cells);
}

const WORST =
  "This is the reading of the worst partition. A unit always stays in one partition, so nobody has lost more. The table of partitions has one row for each.";

/** Explains that a dataset by unit has no reading as a whole. */
export function showNoHero() {
  fill(
    byId("reading"),
    h("p", {}, "There is no number for the dataset as a whole: each unit's data is randomised separately, and each unit has its own odometer."),
    h("p", { class: "small muted" }, "Look up a unit below. Units are not listed."),
  );
}

/** Shows the reading that always holds, in large digits, with the conditions under which it holds. */
export function showHero(odometer, { partitioned = false } = {}) {
  const now = odometer.readings.find((each) => each.name === "if_stopped_now");
  if (!now) return fill(byId("reading"), h("p", { class: "muted" }, "The service sent no reading."));
  const text = now.value === null ? "no bound" : upOnWheels(now.value);
  fill(
    byId("reading"),
    h("p", { class: "sr" }, `${symbol(now.quantity)} is ${text}`),
    h("div", { class: "hero-row" }, h("span", { class: "hero-symbol", "aria-hidden": "true" }, symbol(now.quantity)), wheels(text)),
    h("p", { class: "hero-at" }, `if stopped now, at δ = ${exact(now.delta ?? odometer.delta)}`),
    partitioned ? h("p", { class: "small" }, WORST) : null,
    held(odometer.held),
    above(now, odometer),
    h("p", { class: "small muted" }, now.holds),
  );
}

/** Explains a reading that is above a budget's limit; null if it is not. */
function above(now, { delta, budgets }) {
  const whole = (budgets ?? []).filter((each) => !each.window && (each.scope ?? "dataset") === "dataset");
  const why = now.value === null ? null : aboveLimits(now.value, now.delta ?? delta, whole);
  return why === null ? null : h("p", { class: "small above-note" }, why);
}

/** The part of the loss that open holds may give back. */
function held(loss) {
  const words = loss ? lossWords(loss, up) : "nothing";
  return words === "nothing" ? null : h("p", { class: "small held-note" }, h("strong", {}, "Held: "), `${words}. This reading includes it. The unused part comes back when the holds are settled.`);
}

function row(each) {
  const { title, mark } = reading(each);
  const warnings = (each.warnings ?? []).map((text) => h("p", { class: "small warning" }, text));
  return {
    kind: mark ? "what-if" : null,
    cells: [
      h("span", {}, h("strong", {}, title), each.budget ? h("span", { class: "of" }, each.budget) : null, mark ? chip(mark, "none") : null),
      each.value === null ? h("span", { class: "muted" }, "no bound") : `${symbol(each.quantity)} ${up(each.value)}`,
      each.delta === null ? "–" : exact(each.delta),
      each.order === null ? "–" : exact(each.order),
      h("div", {}, h("p", {}, each.holds), warnings),
    ],
  };
}

const COLUMNS = [
  ["Reading", "name"],
  ["Value", "number"],
  ["δ", "number"],
  ["Order", "number"],
  ["Holds", "wide"],
];

/** Shows every reading with its conditions. Readings without conditions come first. */
export function showReadings(odometer) {
  const rows = [...odometer.readings].sort((a, b) => reading(a).place - reading(b).place).map(row);
  fill(byId("readings"), table(COLUMNS, rows, "Readings of the odometer"));
  if (document.activeElement !== byId("delta")) byId("delta").value = odometer.delta.toExponential();
}

/** Connects the form for readings at another δ. */
export function startDelta(root) {
  byId("delta-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const error = byId("delta-error");
    const delta = Number(byId("delta").value);
    error.hidden = delta > 0 && delta < 1;
    error.textContent = error.hidden ? "" : "δ must be a number between 0 and 1, for example 1e-6.";
    if (!error.hidden) return;
    try {
      showReadings(await get(`${root}/odometer?delta=${encodeURIComponent(delta)}`));
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      error.hidden = false;
      error.textContent = problem.text();
    }
  });
}

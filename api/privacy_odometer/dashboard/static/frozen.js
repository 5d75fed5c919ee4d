// Explains a dataset whose ledger cannot be trusted: what happened, what it means, what to do.

import { sentence } from "./api.js";
import { h } from "./dom.js";

const FROZEN = "/problems/ledger-rolled-back";
const UNTRUSTED = [FROZEN, "/problems/ledger-corrupt"];

/** Whether a problem is about the ledger itself, and lasts until a person decides. */
export function needsAPerson(problem) {
  return UNTRUSTED.includes(problem.type);
}

/** The word for such a dataset in its chip and in summaries. */
export function word(problem) {
  return problem.type === FROZEN ? "Frozen" : "Damaged";
}

const code = (text) => h("code", {}, text);

/** The service's text; the parts between backticks become code. */
function prose(text) {
  return text.split("`").map((part, i) => (i % 2 ? code(part) : part));
}

function steps(name, problem) {
  if (problem.type !== FROZEN) {
    return [
      h("li", {}, "Run ", code("odometer verify"), ". It recounts every entry and names the place where the ledger contradicts itself."),
      h("li", {}, "Copy the store as it is before you repair or restore anything."),
    ];
  }
  return [
    h("li", {}, "Find out what changed the store: a restored backup, a replaced file, or a replica that took over too early."),
    h("li", {}, "If the lost entries still exist somewhere, stop the service, put that store back and start the service again."),
    h(
      "li",
      {},
      "If they are lost, an admin can accept the loss with ",
      code(`odometer unfreeze ${name} --reason "…"`),
      ". The ledger keeps the reason. Then charge by hand everything that was released under the lost entries.",
    ),
  ];
}

/** The whole explanation. `problem` has `type`, `title` (or `message`) and `detail`. */
export function explained(name, problem, { heading = "h2" } = {}) {
  const title = problem.type === FROZEN ? "This dataset is frozen" : "This dataset's ledger is damaged";
  return h(
    "div",
    { class: "notice bad frozen" },
    h(heading, { class: "frozen-title" }, title),
    h("p", {}, h("strong", {}, "What happened. "), prose(sentence(problem.title ?? problem.message)), " ", prose(sentence(problem.detail))),
    h(
      "p",
      {},
      h("strong", {}, "Meanwhile. "),
      "Every charge is refused and no reading is shown: the missing entries may have spent privacy, so any number could be too low.",
    ),
    h("p", {}, h("strong", {}, "What to do.")),
    h("ol", {}, steps(name, problem)),
  );
}

/** Names the frozen shards of a dataset by unit; null if there are none. The other shards work. */
export function frozenShards(dataset) {
  const numbers = dataset.frozen_shards ?? [];
  if (!numbers.length) return null;
  const which = numbers.length === 1 ? `Shard ${numbers[0]} is` : `Shards ${numbers.join(", ")} are`;
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    h("strong", {}, `${which} frozen`),
    h(
      "p",
      {},
      `The ledger history of ${numbers.length} of ${dataset.shards} shards was rolled back. Charges on the units in these shards are refused, and their odometers are not shown. All other units work as before. `,
      "As for a frozen dataset, put the lost entries back, or let an admin accept the loss with ",
      code(`odometer unfreeze ${dataset.name} --reason "…"`),
      ".",
    ),
  );
}

/** Explains why the open holds of a dataset by unit are not listed. */
export function noHolds(problem) {
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    h("strong", {}, "The open holds are not shown"),
    h("p", {}, "A shard with some of them cannot be trusted, and a list of the others would be too short. ", prose(sentence(problem.detail))),
  );
}

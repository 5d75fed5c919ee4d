// A dataset whose ledger cannot be trusted, in words: what happened, what it means, what a person can do.

import { h } from "./dom.js";

const FROZEN = "/problems/ledger-rolled-back";
const UNTRUSTED = [FROZEN, "/problems/ledger-corrupt"];

/** Whether a problem is about the ledger itself, and stays until a person has decided. */
export function needsAPerson(problem) {
  return UNTRUSTED.includes(problem.type);
}

/** The word for such a dataset, for its chip and for summaries. */
export function word(problem) {
  return problem.type === FROZEN ? "Frozen" : "Damaged";
}

const code = (text) => h("code", {}, text);

/** The service's words, with what stands between backticks as code. */
function prose(text) {
  return text.split("`").map((part, i) => (i % 2 ? code(part) : part));
}

function steps(name, problem) {
  if (problem.type !== FROZEN) {
    return [
      h("li", {}, "Run ", code("odometer verify"), ": it counts every entry again and says where the ledger contradicts itself."),
      h("li", {}, "Keep a copy of the store as it is before anything is repaired or restored."),
    ];
  }
  return [
    h("li", {}, "Find out what changed the store: a backup that was restored, a file that was replaced, a replica that took over too early."),
    h("li", {}, "If the lost entries still exist somewhere: stop the service, put that store back, start it again."),
    h(
      "li",
      {},
      "If they are lost: an admin goes on without them, with ",
      code(`odometer unfreeze ${name} --reason "…"`),
      "; the ledger keeps the reason. Then charge again by hand whatever was released under the lost entries.",
    ),
  ];
}

/** All of it: `problem` has type, title (or message) and detail. */
export function explained(name, problem, { heading = "h2" } = {}) {
  const title = problem.type === FROZEN ? "This dataset is frozen" : "This dataset's ledger is damaged";
  return h(
    "div",
    { class: "notice bad frozen" },
    h(heading, { class: "frozen-title" }, title),
    h("p", {}, h("strong", {}, "What happened. "), `${problem.title ?? problem.message}: `, prose(problem.detail), "."),
    h(
      "p",
      {},
      h("strong", {}, "Meanwhile. "),
      "Every charge is refused, and no reading is shown: what is missing may have been spent, so any number would be too low.",
    ),
    h("p", {}, h("strong", {}, "What to do.")),
    h("ol", {}, steps(name, problem)),
  );
}

/** Of a dataset by unit: some shards of its odometers are frozen, the rest goes on. */
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
      `The ledger of ${numbers.length} of ${dataset.shards} shards went back in time. Charges on the units kept there are refused and their odometers are not shown; all other units go on. `,
      "What to do is the same as for a frozen dataset: put the lost entries back, or an admin goes on without them with ",
      code(`odometer unfreeze ${dataset.name} --reason "…"`),
      ".",
    ),
  );
}

/** Of a dataset by unit: why its open holds are not listed. */
export function noHolds(problem) {
  return h(
    "div",
    { class: "notice bad", role: "alert" },
    h("strong", {}, "The open holds are not shown"),
    h("p", {}, "A shard that keeps some of them cannot be trusted, and a list of the others would be too short. ", prose(problem.detail), "."),
  );
}

"""The accountant's embedded face: documents in, documents out. The HTTP service is a thin layer over it."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from accountant import advice, history, odometer, receipts
from accountant.book import Outcome, check_history, load_state
from accountant.budgets import ANY_BUDGET, LEAST_DELTA, Budget, workload_loss
from accountant.commands import (
    ChargeCommand,
    CloseCommand,
    Command,
    CreateDataset,
    OpenCommand,
    Prepared,
    SetBudgetCommand,
)
from accountant.convert import convert
from accountant.decide import Admitted, Refused, Replayed, check_adjacency, etag
from accountant.documents import validated
from accountant.errors import (
    BodyTooLarge,
    BudgetExceeded,
    IfMatchRequired,
    InvalidRequest,
    OdometerError,
    StoreUnavailable,
    UnknownBudget,
)
from accountant.grid import CURRENT_GRID
from accountant.ledger import DATASET_SCOPE, State
from accountant.mechanisms import Mechanism
from accountant.requests import (
    Body,
    idempotency_key,
    is_slug,
    mechanism_document,
    named_budget,
    page_limit,
    prepared_charge,
    unknown_dataset,
    valid_principal,
)
from accountant.stores import EMPTY_HEAD, Store, open_store
from accountant.teller import Teller, utc_now


class Accountant:
    """One ledger store and its teller. Safe to call from several threads.

    Every method takes and returns what the HTTP route of the same name does, and raises an
    `OdometerError`. Methods that change something name their principal.
    """

    def __init__(
        self,
        store: Store,
        clock: Callable[[], str] = utc_now,
        on_death: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.store = store
        self.teller = Teller(store, clock, on_death)

    @classmethod
    def open(cls, url: str) -> Self:
        """On the store at `url`, for example `sqlite:///data/ledger.sqlite`."""
        return cls(open_store(url))

    def close(self) -> None:
        """Answer what waits, then let go of the store."""
        self.teller.close()
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- datasets and budgets

    def create_dataset(self, body: Body | Mapping[str, Any], principal: str) -> dict[str, Any]:
        request = validated(CreateDataset, body)
        _warm(request, *request.budgets)
        return self._dataset_document(self._change(request.name, OpenCommand(request, principal)))

    def dataset(self, name: str) -> dict[str, Any]:
        return self._dataset_document(self.state(name))

    def datasets(self, after: str = "", limit: int = 100) -> dict[str, Any]:
        names = [name for name in self.store.streams(after, page_limit(limit) + 1) if is_slug(name)]
        shown = names[:limit]
        return {
            "items": [self.dataset(name) for name in shown],
            "next": shown[-1] if len(names) > limit else None,
        }

    def budgets(self, name: str) -> dict[str, Any]:
        return {"items": self.dataset(name)["budgets"], "next": None}

    def add_budget(self, name: str, body: Body | Mapping[str, Any], principal: str) -> dict[str, Any]:
        self.state(name)
        budget = validated(ANY_BUDGET, body)
        _warm(budget)
        state = self._change(name, SetBudgetCommand(budget, principal))
        return self._budget_state(state, budget.name)

    def change_budget(
        self,
        name: str,
        budget_name: str,
        body: Body | Mapping[str, Any],
        if_match: str | None,
        principal: str,
    ) -> dict[str, Any]:
        """A new limit keeps the weights; any other change fixes new ones (SOUNDNESS section 6)."""
        before = self.state(name).budgets.get(budget_name)
        if before is None:
            raise UnknownBudget(f"dataset {name} has no budget {budget_name}")
        if if_match is None:
            raise IfMatchRequired(
                "send If-Match with the budget's etag, so that no one else's change is lost",
                etag=etag(before),
            )
        budget = named_budget(body, budget_name)
        _warm(budget)
        state = self._change(name, SetBudgetCommand(budget, principal, if_match))
        document = self._budget_state(state, budget_name)
        if type(budget) is type(before.budget) and budget.limit() > before.budget.limit():
            document["warning"] = (
                f"the limit was raised from {before.budget.limit():g} to {budget.limit():g}: what people "
                "were promised before no longer holds, the higher limit does"
            )
        return document

    def close_dataset(self, name: str, principal: str) -> dict[str, Any]:
        return self._dataset_document(self._change(name, CloseCommand(principal)))

    # -- charges

    def charge(
        self, name: str, body: Body | Mapping[str, Any], key: str | None, principal: str
    ) -> tuple[dict[str, Any], bool]:
        """(receipt, replayed). Nothing may be released before this returns."""
        if not is_slug(name):
            raise unknown_dataset(name)
        key = idempotency_key(key)
        prepared = self.prepare(name, body)
        decision = self._wait(name, ChargeCommand(prepared, valid_principal(principal), key))
        document, replayed = self.receipt(decision, prepared, principal)
        return json.loads(document), replayed

    def receipt(self, outcome: Outcome, prepared: Prepared, principal: str) -> tuple[bytes, bool]:
        """The receipt of a teller's outcome as JSON, and whether it is a replay; raises the refusal."""
        if isinstance(outcome, Admitted):
            state = outcome.state
            return (
                receipts.receipt(
                    state,
                    state.head.sequence,
                    state.head.hash,
                    state.time,
                    principal,
                    receipts.fragment_of(prepared),
                    replayed=False,
                ),
                False,
            )
        if isinstance(outcome, Replayed):
            row = outcome.row
            entry_time = json.loads(row.body)["time"]
            fixed = receipts.fragment_of(prepared)
            return (
                receipts.receipt(
                    outcome.state, row.sequence, row.hash, entry_time, principal, fixed, replayed=True
                ),
                True,
            )
        raise self.refusal(outcome, prepared)

    def refusal(self, outcome: Outcome, prepared: Prepared) -> OdometerError:
        """The error to raise; a refusal says what is short and what would fit. May take milliseconds."""
        error = outcome.error if isinstance(outcome, Refused) else outcome
        if isinstance(error, BudgetExceeded) and isinstance(outcome, Refused) and outcome.state is not None:
            state = outcome.state
            error.fields = {
                "dataset": state.dataset.name,
                "refusals": advice.refusals(state, prepared),
                "would_fit": advice.would_fit(state, prepared),
            }
        if not isinstance(error, OdometerError):
            raise TypeError(f"not a refusal: {outcome!r}")
        return error

    def check(self, name: str, body: Body | Mapping[str, Any]) -> dict[str, Any]:
        """Would it fit, what would be left, what is the most that fits. Changes nothing."""
        state = self.state(name)
        prepared = self.prepare(name, body)
        check_adjacency(state, prepared)
        fitting = advice.fits(state, prepared.loss)
        shown = replace(state, totals={DATASET_SCOPE: state.spent.plus(prepared.loss)}) if fitting else state
        return {
            "fits": fitting and not state.closed,
            "left": receipts.left(shown),
            "refusals": advice.refusals(state, prepared),
            "would_fit": advice.would_fit(state, prepared),
        }

    # -- readings

    def odometer(self, name: str, delta: float | None = None) -> dict[str, Any]:
        if delta is not None and not LEAST_DELTA <= delta < 1:
            raise InvalidRequest(
                f"delta: must be above 0 and below 1, got {delta}",
                errors=[{"field": "delta", "message": "must be above 0 and below 1"}],
            )
        state = self.state(name)
        return {
            "dataset": name,
            "sequence": state.head.sequence,
            "time": state.time,
            "delta": float(state.dataset.delta) if delta is None else delta,
            "readings": [reading.document() for reading in odometer.readings(state, delta)],
            "totals": odometer.loss_document(state.spent),
            "budgets": self._budget_states(state),
        }

    def history(self, name: str, points: int = 200) -> dict[str, Any]:
        return {"points": history.series(self.store, self.state(name), min(max(points, 2), 1000))}

    def spend(self, name: str) -> dict[str, Any]:
        return history.spend(self.store, self.state(name))

    def ledger(
        self,
        name: str,
        after: int = 0,
        limit: int = 100,
        before: int | None = None,
        newest_first: bool = False,
    ) -> dict[str, Any]:
        return history.page(self.store, self.state(name), after, page_limit(limit), before, newest_first)

    # -- stateless

    @staticmethod
    def mechanisms() -> dict[str, Any]:
        return {"items": [mechanism_document(kind) for kind in Mechanism.registry.values()], "next": None}

    @staticmethod
    def convert(body: Body | Mapping[str, Any]) -> dict[str, Any]:
        return convert(body)

    # -- inside

    def state(self, name: str) -> State:
        """The dataset as the store has it now. Raises UnknownDataset; LedgerRolledBack when it went back."""
        if not is_slug(name):
            raise unknown_dataset(name)
        seen = self.teller.seen(name)  # before the store is read: the teller moves on meanwhile
        state = load_state(self.store, name, [DATASET_SCOPE])
        check_history(self.store, name, seen, state.head if state else EMPTY_HEAD)
        if state is None:
            raise unknown_dataset(name)
        return state

    def prepare(self, name: str, body: Body | Mapping[str, Any]) -> Prepared:
        """A charge request for a dataset, parsed and warmed; a dataset that is unknown is said first."""
        try:
            return prepared_charge(body)
        except (BodyTooLarge, InvalidRequest):
            self.state(name)
            raise

    def _change(self, name: str, command: Command) -> State:
        decision = self._wait(name, command)
        if isinstance(decision, Admitted):
            return self.state(name)
        error = decision.error if isinstance(decision, Refused) else decision
        raise error if isinstance(error, OdometerError) else TypeError(f"unexpected outcome {decision!r}")

    def _wait(self, stream: str, command: Command) -> Outcome:
        valid_principal(command.principal)
        sink = _Waiter()
        self.teller.submit(stream, command, sink, None)
        return sink.wait()

    def _dataset_document(self, state: State) -> dict[str, Any]:
        dataset = state.dataset
        return {
            "name": dataset.name,
            "unit": dataset.unit,
            "adjacency": dataset.adjacency.value,
            "delta": float(dataset.delta),
            "delta_add": int(dataset.delta_add) / 10**18,
            "grid_version": dataset.grid_version,
            "created": dataset.created,
            "sequence": state.head.sequence,
            "closed": state.closed,
            "odometer_only": not state.budgets,
            "budgets": self._budget_states(state),
        }

    def _budget_states(self, state: State) -> list[dict[str, Any]]:
        return [
            odometer.budget_state(entry, rule, state.spent, etag(entry))
            for entry, rule in zip(state.budgets.values(), state.rules, strict=True)
        ]

    def _budget_state(self, state: State, budget_name: str) -> dict[str, Any]:
        return next(item for item in self._budget_states(state) if item["name"] == budget_name)


class _Waiter:
    """A sink for one thread that waits. Unbounded in time on purpose: the teller always answers or ends."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._outcome: Outcome | None = None

    def deliver(self, answers: Sequence[tuple[Any, Outcome]]) -> None:
        self._outcome = answers[0][1]
        self._done.set()

    def wait(self) -> Outcome:
        self._done.wait()
        if self._outcome is None:
            raise StoreUnavailable("the ledger gave no answer")
        return self._outcome


def _warm(*documents: CreateDataset | Budget) -> None:
    """Compute here what a decision needs of the workloads: the teller, which all wait for, never does."""
    for document in documents:
        workload = getattr(document, "workload", None)
        if workload is not None:
            workload_loss(workload, CURRENT_GRID)

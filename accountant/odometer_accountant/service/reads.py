"""Reads the odometer, the scopes, the history and the entries of a dataset."""

from collections.abc import Sequence
from typing import Any

from odometer_accountant.budgets.base import LEAST_DELTA
from odometer_accountant.errors import (
    InvalidRequest,
    StoreUnavailable,
)
from odometer_accountant.ledger.decide import frozen_error
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.queries import history, holds, readings, receipts, scopes
from odometer_accountant.queries.reading import loss_document, whole
from odometer_accountant.queries.scopes import never_charged
from odometer_accountant.scopes import DATASET_SCOPE, shard_stream, split
from odometer_accountant.service.budgets import Budgets
from odometer_accountant.service.reader import READS_MAX
from odometer_accountant.service.request_checks import (
    page_limit,
    scope_name,
    shard_of_units,
)


class Reads(Budgets):
    """Reads of a dataset. They change nothing."""

    def odometer(self, name: str, delta: float | None = None, scope: str | None = None) -> dict[str, Any]:
        if delta is not None and not LEAST_DELTA <= delta < 1:
            raise InvalidRequest(
                f"delta: must be above 0 and below 1, got {delta}",
                errors=[{"field": "delta", "message": "must be above 0 and below 1"}],
            )
        state, spent = self._scope(name, scope)
        now = max(state.time, self.clock())
        open_now = list(holds.open_entries(self.store, state, now))
        held = holds.held(state, scope, open_now)
        note = (
            never_charged(self.store, state, scope)
            if scope and scope != "dataset" and spent.is_zero
            else None
        )
        return {
            "dataset": name,
            "scope": scope or "dataset",
            "known": note is None,
            **({"notes": [note]} if note else {}),
            "sequence": state.head.sequence,
            "time": state.time,
            "delta": float(state.dataset.delta) if delta is None else delta,
            "readings": [
                reading.document()
                for reading in readings.readings(state, spent, delta, scope or DATASET_SCOPE)
            ],
            "totals": loss_document(spent),
            "held": loss_document(held),
            "budgets": self._with_held(state, open_now, now),
            "left": receipts.left_of(state, scope, now) if scope and scope != "dataset" else [],
        }

    def _with_held(self, state: State, entries: Sequence[holds.HeldEntry], now: str) -> list[dict[str, Any]]:
        """The budgets, each with how much of its spent amount comes back if no open hold is used."""
        budgets = self._budget_states(state)
        unused = self._budget_states(holds.unused(state, entries, now))
        for budget, without in zip(budgets, unused, strict=True):
            known = budget["spent"] is not None and without["spent"] is not None
            budget["held"] = max(0.0, budget["spent"] - without["spent"]) if known else None
        return budgets

    def _scope(self, name: str, scope: str | None) -> tuple[State, Loss]:
        """A dataset and what one of its scopes has lost."""
        state = self.state(name)
        if scope is None or scope == "dataset":
            return _as_a_whole(state, "scope"), whole(state)
        kind, item = split(scope_name(scope, state))
        names = state.blob_names([scope])
        if kind == "unit":
            stream = shard_stream(name, shard_of_units((item,), state.dataset.shards))
            part = self._shard(state, stream, names)
        else:
            part = self._with(name, names) or state
        if part.frozen is not None:
            raise frozen_error(part)
        spent = part.totals.of(scope)
        return part, part.spent.plus(spent) if kind == "partition" else spent

    def scopes(self, name: str, kind: str, after: str = "", limit: int = 100) -> dict[str, Any]:
        """One page of the scopes of a kind, each with what it has lost."""
        state = self.state(name)
        if kind == "unit" or state.composition == "by_unit":
            raise InvalidRequest(
                "kind: units are not listed; ask for the odometer of one",
                errors=[{"field": "kind", "message": "units are not listed"}],
            )
        for _ in range(READS_MAX):
            found = scopes.scopes(self.store, state, kind, after, page_limit(limit), self.clock())
            if found is not None:
                return found
            state = self.state(name)
        raise StoreUnavailable(f"{name} moved on each time it was read: ask again")

    def history(self, name: str, points: int = 200) -> dict[str, Any]:
        state = _as_a_whole(self.state(name), "dataset")
        return {"points": history.series(self.store, state, min(max(points, 2), 1000))}

    def spend(self, name: str) -> dict[str, Any]:
        return scopes.spend(self.store, _as_a_whole(self.state(name), "dataset"))

    def ledger(
        self,
        name: str,
        after: int = 0,
        limit: int = 100,
        before: int | None = None,
        newest_first: bool = False,
    ) -> dict[str, Any]:
        return history.page(self.store, self._looked_at(name), after, page_limit(limit), before, newest_first)


def _as_a_whole(state: State, field: str) -> State:
    """The state, unless it is by unit: then it has no count of its own. Raises InvalidRequest for `field`."""
    if state.composition == "by_unit":
        raise InvalidRequest(
            f"{field}: dataset {state.dataset.name} composes by_unit and has no odometer as a whole: ask for "
            "that of a unit, odometer?scope=unit/…",
            errors=[{"field": field, "message": "has no odometer as a whole; ask for that of a unit"}],
        )
    return state

"""Checks that a shard only ever used its dataset's budgets, in order. For `verify`."""

import json
from typing import Any

from odometer_accountant.errors import LedgerCorrupt
from odometer_accountant.ledger.entries import canonical
from odometer_accountant.ledger.fold import apply
from odometer_accountant.ledger.state import State
from odometer_accountant.scopes import shard_parent
from odometer_accountant.stores import Store

_PAGE = 128


class BudgetHistory:
    """The successive budgets of one dataset, read once for all of its shards."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._name = ""
        self._state: State | None = None
        self._at: dict[bytes, int] = {}

    def fault(self, stream: str, body: bytes, least: int) -> tuple[str, int]:
        """(the fault of a shard's entry or "", the number of the budgets of its dataset that it names).

        `least` is the number of the budgets that the shard had before: it never goes back to earlier ones.
        """
        entry = json.loads(body)
        if entry["type"] not in ("opened", "synced"):
            return "", least
        try:
            self._read_on(shard_parent(stream) or "")
        except LedgerCorrupt as error:
            return f"has budgets that were not compared: its dataset cannot be counted: {error.detail}", least
        opened = self._state
        if opened is None:
            return f"belongs to dataset {self._name}, which is not in this store", least
        if entry["type"] == "opened" and entry["dataset"] != opened.dataset.model_dump(mode="json"):
            return f"binds other facts than dataset {self._name} does", least
        found = self._at.get(_configuration(entry["budgets"], entry.get("closed", False)))
        if found is None:
            return f"has budgets that dataset {self._name} never had", least
        if found < least:
            return f"goes back to budgets that dataset {self._name} had before", least
        return "", found

    def _read_on(self, name: str) -> None:
        """Read the dataset's new entries."""
        if name != self._name:
            self._name, self._state, self._at = name, None, {}
        while rows := self._store.entries(name, self._state.head.sequence if self._state else 0, _PAGE):
            for row in rows:
                self._state = apply(self._state, row.hash, row.body)
                budgets = {key: entry.document() for key, entry in self._state.budgets.items()}
                self._at.setdefault(_configuration(budgets, self._state.closed), len(self._at))


def _configuration(budgets: dict[str, Any], closed: bool) -> bytes:
    return canonical({"budgets": budgets, "closed": closed})

"""Creates, lists, closes and unfreezes datasets."""

from collections.abc import Mapping
from typing import Any

from odometer_accountant.errors import (
    LedgerCorrupt,
    LedgerRolledBack,
    NotFrozen,
)
from odometer_accountant.ledger.charge_totals import open_holds
from odometer_accountant.ledger.commands import (
    AddPartitionsCommand,
    CloseCommand,
    OpenCommand,
    UnfreezeCommand,
)
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_accountant.numerics.rounding import shown_down
from odometer_accountant.queries import warnings
from odometer_accountant.requests.bodies import (
    CreateDataset,
    NewPartitions,
    Unfreeze,
)
from odometer_accountant.requests.json_input import validated
from odometer_accountant.scopes import shard_number, shard_parent
from odometer_accountant.service.budgets import Budgets, precompute
from odometer_accountant.service.request_checks import (
    Body,
    is_slug,
    page_limit,
)


class Datasets(Budgets):
    """The datasets of one store."""

    def create_dataset(self, body: Body | Mapping[str, Any], principal: str) -> dict[str, Any]:
        request = validated(CreateDataset, body)
        precompute(CURRENT_GRID, request, *request.budgets)
        document = self._dataset_document(self._change(request.name, OpenCommand(request, principal)))
        said = warnings.notes(request)
        return document | {"notes": said} if said else document

    def dataset(self, name: str) -> dict[str, Any]:
        return self._dataset_document(self.state(name))

    def datasets(self, after: str = "", limit: int = 100) -> dict[str, Any]:
        """One page by name. A dataset that cannot be read is listed with its problem: it hides no other."""
        stored = self.store.streams(after, page_limit(limit) + 1)
        # A ledger that was there and is gone altogether is listed too, with its problem.
        seen = [name for name in self.writer.streams() if name > after]
        names = sorted({name for name in (*stored, *seen) if is_slug(name)})
        shown = names[:limit]
        return {
            "items": [self._listed(name) for name in shown],
            "next": shown[-1] if len(names) > limit else None,
        }

    def _listed(self, name: str) -> dict[str, Any]:
        try:
            return self.dataset(name)
        except (LedgerCorrupt, LedgerRolledBack) as error:
            problem = error.problem()
            return {"name": name, "problem": {part: problem[part] for part in ("type", "title", "detail")}}

    def budgets(self, name: str) -> dict[str, Any]:
        return {"items": self.dataset(name)["budgets"], "next": None}

    def close_dataset(self, name: str, principal: str) -> dict[str, Any]:
        return self._dataset_document(self._change(name, CloseCommand(principal)))

    def add_partitions(self, name: str, body: Body | Mapping[str, Any], principal: str) -> dict[str, Any]:
        self.state(name)
        wanted = validated(NewPartitions, body)
        return self._dataset_document(self._change(name, AddPartitionsCommand(wanted.partitions, principal)))

    def unfreeze(self, name: str, body: Body | Mapping[str, Any], principal: str) -> dict[str, Any]:
        """Go on without what was lost. Raises NotFrozen when neither the dataset nor a shard is frozen."""
        self._looked_at(name)
        reason = validated(Unfreeze, body).reason
        frozen = self._frozen_streams(name)
        if not frozen:
            raise NotFrozen(f"dataset {name} is not frozen")
        for stream in frozen:
            self._change(stream, UnfreezeCommand(reason, principal))
        return self.dataset(name)

    def _dataset_document(self, state: State) -> dict[str, Any]:
        dataset = state.dataset
        return {
            "name": dataset.name,
            "unit": dataset.unit,
            "adjacency": dataset.adjacency.value,
            "delta": float(dataset.delta),
            "delta_add": shown_down(int(dataset.delta_add), dataset.grid.units_in_one[dataset.grid.delta]),
            "grid_version": dataset.grid_version,
            "created": dataset.created,
            "sequence": state.head.sequence,
            "closed": state.closed,
            "odometer_only": dataset.odometer_only and not any(not limit.window for limit in state.limits),
            "composition": dataset.composition,
            "partitions": list(state.partitions),
            "shards": dataset.shards,
            "frozen": state.frozen is not None,
            "frozen_shards": self._frozen_shards(state),
            "open_holds": self._open_holds(state),
            "budgets": self._budget_states(state),
        }

    def _open_holds(self, state: State) -> int | None:
        """How many; None by unit, whose holds are in the shards: they are counted when they are listed."""
        if state.dataset.shards:
            return None
        return len(open_holds(state.holds, max(state.time, self.clock())))

    def _frozen_shards(self, state: State) -> list[int]:
        if not state.dataset.shards:
            return []
        frozen = self.writer.stats.frozen_streams()
        return sorted(shard_number(one) for one in frozen if shard_parent(one) == state.dataset.name)

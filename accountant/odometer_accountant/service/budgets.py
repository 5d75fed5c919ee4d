"""Adds and changes the budgets of a dataset, and shows what is spent of each."""

from collections.abc import Mapping
from typing import Any

from odometer_accountant.budgets import ANY_BUDGET
from odometer_accountant.budgets.approximate import workload_loss
from odometer_accountant.budgets.base import Budget
from odometer_accountant.errors import (
    IfMatchRequired,
    UnknownBudget,
)
from odometer_accountant.ledger.budget_changes import etag
from odometer_accountant.ledger.commands import (
    SetBudgetCommand,
)
from odometer_accountant.ledger.state import State
from odometer_accountant.numerics.grid import Grid
from odometer_accountant.queries import warnings
from odometer_accountant.queries.guarantees import budget_state
from odometer_accountant.requests.bodies import (
    CreateDataset,
)
from odometer_accountant.requests.json_input import validated
from odometer_accountant.service.reader import StateReader
from odometer_accountant.service.request_checks import (
    Body,
    named_budget,
)


class Budgets(StateReader):
    """The budgets of datasets."""

    def add_budget(self, name: str, body: Body | Mapping[str, Any], principal: str) -> dict[str, Any]:
        grid = self.state(name).dataset.grid
        budget = validated(ANY_BUDGET, body)
        precompute(grid, budget)
        state = self._change(name, SetBudgetCommand(budget, principal))
        document = self._budget_state(state, budget.name)
        said = warnings.about_budget(self._as_of_now(state), budget)
        return document | {"warning": " ".join(said)} if said else document

    def change_budget(
        self,
        name: str,
        budget_name: str,
        body: Body | Mapping[str, Any],
        if_match: str | None,
        principal: str,
    ) -> dict[str, Any]:
        """A new limit keeps the weights; any other change fixes new ones (SOUNDNESS section 6)."""
        dataset = self.state(name)
        before = dataset.budgets.get(budget_name)
        if before is None:
            raise UnknownBudget(f"dataset {name} has no budget {budget_name[:80]}")
        if if_match is None:
            raise IfMatchRequired(
                "send If-Match with the budget's etag, so that no one else's change is lost",
                etag=etag(before),
            )
        budget = named_budget(body, budget_name, before.budget)
        precompute(dataset.dataset.grid, budget)
        state = self._change(name, SetBudgetCommand(budget, principal, if_match))
        document = self._budget_state(state, budget_name)
        change = warnings.changed(before.budget, state.budgets[budget_name], document["spent"])
        told = [change]
        if before.budget.reserved and budget.reserved is None:
            told.append("the teams' shares are gone: `reserved` was left out")
        told += warnings.about_budget(self._as_of_now(state), budget, change)
        if any(told):
            document["warning"] = " ".join(filter(None, told))
        return document

    def _as_of_now(self, state: State) -> State:
        """As a charge would find it now: of a window that is over, nothing is spent."""
        return state.moved(state.head, max(state.time, self.clock()), state.totals)

    def _budget_states(self, state: State) -> list[dict[str, Any]]:
        now = self._as_of_now(state)
        return [budget_state(now, limit, etag(limit.entry)) for limit in state.limits]

    def _budget_state(self, state: State, budget_name: str) -> dict[str, Any]:
        return next(item for item in self._budget_states(state) if item["name"] == budget_name)


def precompute(grid: Grid, *documents: CreateDataset | Budget) -> None:
    """Compute here what a decision needs of the workloads: the writer, which all wait for, never does."""
    for document in documents:
        workload = getattr(document, "workload", None)
        if workload is not None:
            workload_loss(workload, grid)

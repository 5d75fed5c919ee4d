"""The operations of datasets and their budgets."""

from typing import Annotated, Any, Final

from pydantic import Field

from odometer_accountant import errors
from odometer_accountant.budgets import ANY_BUDGET
from odometer_accountant.model import Model
from odometer_accountant.requests.bodies import CreateDataset, NewPartitions, Unfreeze
from odometer_accountant.requests.json_input import validated
from odometer_accountant.service.operations.operation import (
    ON_DATASET,
    Call,
    Nothing,
    Operation,
    admin,
    if_match,
    read,
)
from odometer_accountant.service.responses.datasets import (
    BudgetsReply,
    BudgetState,
    DatasetReply,
    DatasetsReply,
)


class DatasetPage(Model):
    """Selects a page of datasets."""

    after: Annotated[str, Field(max_length=64)] = ""
    """Names after this one."""
    limit: Annotated[int, Field(ge=1, le=100)] = 100
    """How many, 1 to 100."""


def _close(call: Call) -> dict[str, Any]:
    call.accountant.state(call.dataset)  # 404 comes before 422
    validated(Nothing, call.body)
    return call.accountant.close_dataset(call.dataset, call.who.principal)


def _set_budget(call: Call) -> dict[str, Any]:
    return call.accountant.change_budget(
        call.dataset, call.names["budget"], call.body, call.if_match, call.who.principal
    )


ROWS: Final[tuple[Operation, ...]] = (
    admin(
        "create_dataset",
        "Open a dataset",
        lambda call: call.accountant.create_dataset(call.body, call.who.principal),
        DatasetReply,
        body=CreateDataset,
        computes=True,
        status=201,
        refuses=(errors.DatasetExists,),
    ),
    read(
        "datasets",
        "List datasets",
        lambda call: call.accountant.datasets(call.query.after, call.query.limit),
        DatasetsReply,
        query=DatasetPage,
    ),
    read(
        "dataset",
        "Show a dataset with its budgets",
        lambda call: call.accountant.dataset(call.dataset),
        DatasetReply,
        names=ON_DATASET,
    ),
    admin(
        "close_dataset",
        "Close a dataset: it takes no more charges, and its ledger stays",
        _close,
        DatasetReply,
        names=ON_DATASET,
        body=Nothing,
        refuses=(errors.DatasetClosed,),
    ),
    admin(
        "add_partitions",
        "Add partitions to a dataset that composes by partition",
        lambda call: call.accountant.add_partitions(call.dataset, call.body, call.who.principal),
        DatasetReply,
        names=ON_DATASET,
        body=NewPartitions,
        refuses=(errors.PartitionExists, errors.DatasetClosed),
    ),
    admin(
        "unfreeze",
        "Resume a dataset whose ledger history was rolled back, without the lost entries",
        lambda call: call.accountant.unfreeze(call.dataset, call.body, call.who.principal),
        DatasetReply,
        names=ON_DATASET,
        body=Unfreeze,
        refuses=(errors.NotFrozen,),
    ),
    read(
        "budgets",
        "List a dataset's budgets",
        lambda call: call.accountant.budgets(call.dataset),
        BudgetsReply,
        names=ON_DATASET,
    ),
    admin(
        "add_budget",
        "Add a budget",
        lambda call: call.accountant.add_budget(call.dataset, call.body, call.who.principal),
        BudgetState,
        names=ON_DATASET,
        body=ANY_BUDGET,
        computes=True,
        status=201,
        refuses=(errors.BudgetExists, errors.DatasetClosed),
    ),
    admin(
        "set_budget",
        "Change a budget: a new limit keeps its weights, any other change sets new ones",
        _set_budget,
        BudgetState,
        names=("dataset", "budget"),
        body=ANY_BUDGET,
        computes=True,
        refuses=(errors.UnknownBudget, errors.EditConflict, errors.IfMatchRequired, errors.DatasetClosed),
        headers=if_match("budget"),
    ),
)

"""What is to be said of a dataset or a budget that is taken as it is, and may not be what was meant."""

from typing import Final

from accountant.budgets import ApproximateBudget, Budget
from accountant.datasets import BudgetEntry
from accountant.forms import CreateDataset
from accountant.mechanisms import Adjacency, Mechanism
from accountant.mechanisms import local as _local
from accountant.mechanisms import local_reports as _local_reports
from accountant.odometer import LIMITS_OF_A_PATH

_LARGE_DELTA: Final = 1e-3
"""One over a thousand units: few datasets that anybody counts losses of are smaller."""
LOCAL: Final = tuple(
    kind
    for kind, one in sorted(Mechanism.registry.items())
    if one.__module__ in (_local.__name__, _local_reports.__name__)
    and one.adjacencies == {Adjacency.replace_one}
)
"""The local randomisers."""


def notes(request: CreateDataset) -> list[str]:
    """What whoever opens a dataset should know of it; mostly nothing. None of it can be changed later."""
    found = []
    if request.delta >= _LARGE_DELTA:
        found.append(
            f"δ is {request.delta:g}: nothing is promised with that probability. It should be well below one "
            f"over the number of units, so this is for far fewer than {1 / request.delta:.0f} of them"
        )
    about = (above_dataset(budget, request.delta) for budget in request.budgets)
    found += [said for said in about if said is not None]
    if request.composition == "by_unit" and request.adjacency is not Adjacency.replace_one:
        found.append(
            f"every local randomiser will be refused here: {', '.join(LOCAL)} are analysed under "
            f"replace_one, and this dataset has adjacency {request.adjacency.value}"
        )
    return found


def changed(before: Budget, entry: BudgetEntry, spent: float | None) -> str | None:
    """What is to be said of a budget whose limit is another one now; None where it is not.

    `spent` is what counts against it, where that is one number.
    """
    budget, kind = entry.budget, str(entry.budget.document()["kind"])
    was, now = before.limit(), budget.limit()
    if type(budget) is not type(before) or was == now:
        return None
    if now > was:
        return (
            f"the limit was raised from {was:g} to {now:g}: what people were promised before no longer "
            "holds, the higher limit does"
        )
    said = f"the limit was lowered from {was:g} to {now:g}"
    if spent is not None and spent > now:
        said += f", below the {spent:g} that are spent: nothing more is admitted"
    largest = entry.largest
    if largest is None or largest <= now:
        return said + ("" if "below" in said else ": less is admitted from here on")
    if kind in LIMITS_OF_A_PATH:
        return f"{said}. What was admitted under the higher limit stays out: nothing that is out is undone"
    return (
        f"{said}. The guarantee stays the largest limit that was in force, {largest:g}: one that is lowered "
        f"after looking is no promise of kind {kind}"
    )


def above_dataset(budget: Budget, delta: float) -> str | None:
    """What is to be said of a budget whose δ is above the dataset's; None for any other."""
    if not isinstance(budget, ApproximateBudget) or budget.delta <= delta:
        return None
    return (
        f"budget {budget.name} promises its ε at δ = {budget.delta:g}, which is above the dataset's "
        f"{delta:g}, the δ of the readings: the two are not comparable"
    )

"""OpenDP counts, means and a histogram over 442 people with diabetes, until the budget refuses.

The table ships with scikit-learn (Efron, Hastie, Johnstone, Tibshirani 2004): age, sex, body mass index, ...
Bounds are common knowledge and never taken from the data.
"""

import math
from collections.abc import Callable
from typing import Any

import opendp.prelude as dp
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_diabetes

from odometer_client import BudgetExceeded, Client
from odometer_client.queries.opendp import BudgetedContext

DECADES = ["under 20", "20s", "30s", "40s", "50s", "60s", "70 or over"]
AGE_BOUNDS = (0, 110)
BMI_BOUNDS = (10.0, 60.0)


def ask(client: Client, dataset: str, console: Console) -> int:
    """Ask one question after the other; says how many were answered before the budget refused."""
    dp.enable_features("contrib")
    people = load_diabetes(scaled=False)
    columns = dict(zip(people.feature_names, people.data.T, strict=True))
    ages = _budgeted([int(age) for age in columns["age"]], client, dataset)
    sexes = _budgeted([int(sex) for sex in columns["sex"]], client, dataset)
    indices = _budgeted([float(bmi) for bmi in columns["bmi"]], client, dataset)
    questions: list[tuple[str, float, Callable[[], str]]] = [
        ("how many people", 0.1, lambda: f"{_count(ages, 0.1)}"),
        ("how many of each sex", 0.2, lambda: _by_sex(sexes, 0.2)),
        ("mean age in years", 0.4, lambda: f"{_mean(ages, AGE_BOUNDS, 0.4):.1f}"),
        ("mean body mass index", 0.4, lambda: f"{_mean(indices, BMI_BOUNDS, 0.4):.1f}"),
        ("ages by decade", 0.4, lambda: _by_decade(ages, 0.4)),
        ("mean age again, finer", 1.0, lambda: f"{_mean(ages, AGE_BOUNDS, 1.0):.1f}"),
    ]
    table = Table("question", "costs ε", "answer", "left of ε", title=f"OpenDP on {dataset}")
    answered = 0
    for question, epsilon, answer in questions:
        try:
            shown = answer()
            answered += 1
        except BudgetExceeded as refusal:
            shown = f"refused: would fit {_fits(refusal)}"
        left = client.dataset(dataset).budgets[0]["left"]
        table.add_row(question, f"{epsilon:g}", shown, f"{left:.3g}")
    console.print(table)
    return answered


def _budgeted(rows: list[Any], client: Client, dataset: str) -> BudgetedContext:
    """One column of the table. Each person is one row of it; the service alone decides what is too much."""
    domain = dp.vector_domain(
        dp.atom_domain(T=float, nan=False) if isinstance(rows[0], float) else dp.atom_domain(T=int)
    )
    context = dp.Context.compositor(
        data=rows,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=(dp.max_divergence(), math.inf),
        domain=domain,
    )
    return BudgetedContext.wrap(context, client, dataset)


def _count(column: BudgetedContext, epsilon: float) -> int:
    return int(column.query(epsilon=epsilon).count().laplace().release())


def _mean(column: BudgetedContext, bounds: tuple[float, float], epsilon: float) -> float:
    """A sum and a count, charged as one query: half the epsilon each."""
    both = column.query(epsilon=epsilon).compositor(split_evenly_over=2).release()
    total = both.query().clamp(bounds).sum().laplace().release()
    return float(total) / max(1, both.query().count().laplace().release())


def _by_sex(column: BudgetedContext, epsilon: float) -> str:
    """The file writes 1 and 2 and does not say which is which."""
    counts = (
        column.query(epsilon=epsilon).count_by_categories([1, 2], null_category=False).laplace().release()
    )
    return ", ".join(f"{code}: {count}" for code, count in zip((1, 2), counts, strict=True))


def _by_decade(column: BudgetedContext, epsilon: float) -> str:
    """A histogram over fixed decades: one person changes one bin, so all of it costs what one bin does."""
    edges = list(range(20, 80, 10))
    bins = list(range(len(DECADES)))
    query = column.query(epsilon=epsilon).find_bin(edges=edges).count_by_categories(bins, null_category=False)
    counts = query.laplace().release()
    return ", ".join(f"{name}: {count}" for name, count in zip(DECADES, counts, strict=True))


def _fits(refusal: BudgetExceeded) -> str:
    least_noise = refusal.would_fit.get("least_noise")
    return f"at ε = {least_noise['epsilon']:g}" if least_noise else "nothing any more"

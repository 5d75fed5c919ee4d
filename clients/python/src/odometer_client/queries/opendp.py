"""OpenDP: every query is charged, at the cost that its own privacy map states, before it sees data.

    context = dp.Context.compositor(data=rows, privacy_unit=dp.unit_of(contributions=1),
                                    privacy_loss=dp.loss_of(epsilon=math.inf))   # the service decides alone
    budgeted = BudgetedContext.wrap(context, client, "patients")
    budgeted.query(epsilon=0.1).count().laplace().release()      # raises instead, when the budget refuses

The dataset's unit and the context's privacy unit must say the same: `contributions=k` protects a person
with up to k rows, and that person is the unit. OpenDP rounds costs up, so they are a little above the
nominal ones; they are sent as they are. A query that fails after its charge stays charged: whether
something was learned from it, nobody can say.
"""

import math
from collections.abc import Callable
from typing import Any, Final, Literal, NoReturn, Self

from opendp.context import Context
from opendp.mod import Measurement

from odometer_client.base import UnsupportedPlan
from odometer_client.blocks import Blocks
from odometer_client.client import Client
from odometer_client.documents import Receipt
from odometer_client.keys import new_key
from odometer_client.mechanism import Mechanism
from odometer_client.mechanisms import Approximate, Pure, Zcdp
from odometer_client.payments import DatasetPayments

Adjacency = Literal["add_remove", "replace_one", "zero_out"]
_ADJACENCY_OF: Final[dict[str, Adjacency]] = {
    "SymmetricDistance": "add_remove",
    "InsertDeleteDistance": "add_remove",
    "SymmetricIdDistance": "add_remove",
    "ChangeOneDistance": "replace_one",
    "HammingDistance": "replace_one",
    "ChangeOneIdDistance": "replace_one",
}


class Runner:
    """Charges one dataset for OpenDP measurements. What both forms below share.

    Args:
        client: charges.
        dataset: the dataset's name.
        adjacency: left out, it follows from the measurement's input metric (symmetric and insert-delete
            distance: add_remove; change-one and Hamming: replace_one). State it for other metrics, or
            where d_in was chosen for it (symmetric distance 2 covers replacing one row).
        run_id: names the run in its idempotency keys; made up when left out.
    """

    def __init__(
        self, client: Client, dataset: str, adjacency: Adjacency | None = None, run_id: str | None = None
    ) -> None:
        self.receipt: Receipt | None = None
        """The last receipt."""
        self._client = client
        self._dataset = dataset
        self._adjacency = adjacency
        self._run_id = new_key() if run_id is None else run_id
        self._releases: dict[Adjacency, Blocks] = {}

    def charge(self, measurement: Measurement, d_in: Any) -> None:
        """Pay for one release of `measurement` at input distance `d_in`, or raise."""
        if not hasattr(measurement, "map"):
            raise UnsupportedPlan(
                f"A {type(measurement).__name__} has no cost of its own: it grows with later queries. "
                "Charge those, or use a compositor whose loss is fixed when it is made."
            )
        mechanism = mechanism_of(measurement, d_in)
        adjacency = self._adjacency or adjacency_of(measurement)
        releases = self._releases.get(adjacency)
        if releases is None:
            payments = DatasetPayments(self._client, self._dataset, adjacency)
            releases = self._releases.setdefault(adjacency, Blocks(payments, run_id=self._run_id, block=1))
        releases.take(mechanism)
        self.receipt = releases.receipt


class BudgetedContext(Context):  # type: ignore[misc]
    """An OpenDP Context whose every query is charged first. Make one with `wrap`."""

    runner: Runner

    @classmethod
    def wrap(
        cls,
        context: Context,
        client: Client,
        dataset: str,
        *,
        adjacency: Adjacency | None = None,
        run_id: str | None = None,
    ) -> Self:
        """The same context, charged; use it instead of `context`, which still answers uncharged.

        A compositor inside a query is charged once, for all that may be asked of it.
        """
        wrapped = cls(
            accountant=context.accountant,
            queryable=context.queryable,
            d_in=context.d_in,
            d_mids=context.d_mids,
            d_out=context.d_out,
            query_space=context.query_space,
        )
        wrapped.d_mids_consumed = context.d_mids_consumed
        wrapped.runner = Runner(client, dataset, adjacency, run_id)
        return wrapped

    @staticmethod
    def compositor(*arguments: Any, **named: Any) -> NoReturn:  # noqa: ARG004
        """Refused: OpenDP would return a plain Context, and nothing would be charged."""
        raise TypeError(
            "Make a Context with Context.compositor(...), then BudgetedContext.wrap(context, ...)"
        )

    def __call__(self, query: Measurement) -> Any:
        """Charge, then ask. Every release of every query comes through here."""
        self.runner.charge(query, self.d_in)
        return super().__call__(query)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class ChargedMeasurement:
    """A measurement that is charged before each invocation. Chain first, wrap last."""

    def __init__(self, measurement: Measurement, d_in: Any, runner: Runner) -> None:
        self.runner = runner
        self._measurement = measurement
        self._d_in = d_in

    def invoke(self, data: Any) -> Any:
        """Charge one release, then run the measurement on `data`."""
        self.runner.charge(self._measurement, self._d_in)
        return self._measurement.invoke(data)

    __call__: Callable[[Self, Any], Any] = invoke

    def __rshift__(self, other: Any) -> NoReturn:
        raise TypeError("Chain the measurement itself (measurement >> postprocessing), then wrap the result")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def charged(
    measurement: Measurement,
    d_in: Any,
    client: Client,
    dataset: str,
    *,
    adjacency: Adjacency | None = None,
    run_id: str | None = None,
) -> ChargedMeasurement:
    """`measurement`, charged at input distance `d_in` before each invocation.

    `d_in` is how far apart two datasets can be that differ in one of the dataset's units.
    """
    return ChargedMeasurement(measurement, d_in, Runner(client, dataset, adjacency, run_id))


def mechanism_of(measurement: Measurement, d_in: Any) -> Mechanism:
    """What one release costs, by the measurement's own privacy map. Looks at no data.

    Raises `UnsupportedPlan` for a measure that the service has no mechanism for.
    """
    measure = _name(measurement.output_measure)
    if measure in ("MaxDivergence", "ZeroConcentratedDivergence"):
        loss = _bounded(measurement.map(d_in))
        return Pure(epsilon=loss) if measure == "MaxDivergence" else Zcdp(rho=loss)
    if measure == "Approximate<MaxDivergence>":
        epsilon, delta = measurement.map(d_in)
        return Approximate(epsilon=_bounded(epsilon), delta=_bounded(delta))
    raise UnsupportedPlan(
        f"The measurement states its loss as {measurement.output_measure}, which cannot be charged. Use "
        "pure DP (MaxDivergence), zCDP (ZeroConcentratedDivergence) or (epsilon, delta) "
        "(Approximate(MaxDivergence), by dp.c.make_fix_delta or dp.c.make_approximate)."
    )


def adjacency_of(measurement: Measurement) -> Adjacency:
    """The adjacency that the measurement's input metric speaks of."""
    metric = _name(measurement.input_metric)
    if metric not in _ADJACENCY_OF:
        raise UnsupportedPlan(
            f"The input metric {measurement.input_metric} does not say when two datasets are neighbours: "
            'pass adjacency="add_remove", "replace_one" or "zero_out", as d_in was worked out for.'
        )
    return _ADJACENCY_OF[metric]


def _bounded(loss: Any) -> float:
    number = float(loss)
    if not math.isfinite(number):
        raise UnsupportedPlan(f"The measurement's loss at this d_in is {number}: it has no bound to charge.")
    return number


def _name(kind: Any) -> str:
    """OpenDP's name of a metric or measure, without spaces."""
    return str(kind.type).replace(" ", "")

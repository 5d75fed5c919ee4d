"""The OpenDP runner on a real table, against a real service: charged by the map, before data is seen."""

import math
from collections.abc import Callable
from typing import Any

import opendp.prelude as dp
import pytest
from sklearn.datasets import load_diabetes

from odometer_client import BudgetExceeded, Client
from odometer_client.errors import NotValidUnderAdjacency, UnknownDataset, UnsupportedPlan
from odometer_client.queries.opendp import BudgetedContext, charged, mechanism_of

dp.enable_features("contrib", "honest-but-curious")
NewDataset = Callable[..., str]


@pytest.fixture(scope="session")
def ages() -> list[int]:
    """The ages of 442 people with diabetes."""
    return [int(age) for age in load_diabetes(scaled=False).data[:, 0]]


def unbounded(ages: list[int], measure: str = "epsilon", **options: Any) -> dp.Context:
    """A context that counts its loss and refuses nothing: the service decides alone."""
    measures = {
        "epsilon": (dp.max_divergence(), math.inf),
        "rho": (dp.zero_concentrated_divergence(), math.inf),
    }
    return dp.Context.compositor(
        data=ages, privacy_unit=dp.unit_of(contributions=1), privacy_loss=measures[measure], **options
    )


def losses(client: Client, dataset: str) -> list[dict[str, Any]]:
    """The mechanisms in the dataset's ledger."""
    entries = [item["entry"] for item in client.ledger(dataset)]
    return [entry["command"]["charges"][0]["mechanism"] for entry in entries if entry["type"] == "charged"]


def test_queries_are_answered_until_the_budget_refuses(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    dataset = new_dataset(kind="pure", epsilon=2.0)
    context = BudgetedContext.wrap(unbounded(ages), client, dataset)
    count = context.query(epsilon=0.5).count().laplace().release()
    assert abs(count - 442) < 60
    total = context.query(epsilon=1.0).clamp((0, 100)).sum().laplace().release()
    assert abs(total - sum(ages)) < 5000
    context.query(epsilon=0.25).count().laplace().release()
    with pytest.raises(BudgetExceeded):
        context.query(epsilon=0.5).count().laplace().release()
    assert context.current_privacy_loss() == pytest.approx(1.75)
    assert [mechanism["kind"] for mechanism in losses(client, dataset)] == ["pure"] * 3


def test_a_refused_query_never_sees_the_data(client: Client, new_dataset: NewDataset) -> None:
    seen: list[Any] = []

    def look(data: Any) -> int:
        seen.append(data)
        return 0

    measurement = dp.m.make_user_measurement(
        dp.vector_domain(dp.atom_domain(T=int)),
        dp.symmetric_distance(),
        dp.max_divergence(),
        function=look,
        privacy_map=float,
    )
    guarded = charged(measurement, 1, client, new_dataset(kind="pure", epsilon=1.5))
    guarded([1, 2])
    with pytest.raises(BudgetExceeded):
        guarded.invoke([3])
    assert seen == [[1, 2]]


def test_the_cost_is_the_maps_own_number(client: Client, new_dataset: NewDataset, ages: list[int]) -> None:
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    measurement = space >> dp.t.then_clamp((0, 100)) >> dp.t.then_sum() >> dp.m.then_laplace(scale=333.3)
    dataset = new_dataset(kind="pure", epsilon=2.0)
    charged(measurement, 1, client, dataset)(ages)
    assert float(losses(client, dataset)[0]["epsilon"]) == measurement.map(1)
    assert measurement.map(1) >= 100 / 333.3


def test_a_person_with_several_rows_costs_what_the_map_says(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    measurement = space >> dp.t.then_count() >> dp.m.then_laplace(scale=10.0)
    dataset = new_dataset(kind="pure", epsilon=2.0)
    charged(measurement, 3, client, dataset)(ages)
    assert float(losses(client, dataset)[0]["epsilon"]) == pytest.approx(0.3)


def test_zcdp_is_charged_as_zcdp(client: Client, new_dataset: NewDataset, ages: list[int]) -> None:
    dataset = new_dataset(kind="zcdp", rho=0.25)
    context = BudgetedContext.wrap(unbounded(ages, "rho"), client, dataset)
    context.query(rho=0.125).count().gaussian().release()
    assert losses(client, dataset)[0]["kind"] == "zcdp"
    with pytest.raises(BudgetExceeded) as raised:
        context.query(rho=0.2).count().gaussian().release()
    assert raised.value.would_fit["least_noise"]["kind"] == "zcdp"


def test_epsilon_and_delta_are_charged_together(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    dataset = new_dataset(kind="approximate", epsilon=4.0, delta=1e-5)
    context = dp.Context.compositor(
        data=ages,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=1.0, delta=1e-7),
        split_evenly_over=2,
    )
    BudgetedContext.wrap(context, client, dataset).query().count().gaussian().release()
    (mechanism,) = losses(client, dataset)
    assert mechanism["kind"] == "approximate"
    assert float(mechanism["epsilon"]) == pytest.approx(0.5)
    assert float(mechanism["delta"]) == pytest.approx(5e-8)


def test_approximate_zcdp_is_refused_with_what_works(client: Client, new_dataset: NewDataset) -> None:
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    gaussian = space >> dp.t.then_count() >> dp.m.then_gaussian(scale=10.0)
    measurement = dp.c.make_approximate(gaussian)
    dataset = new_dataset()
    with pytest.raises(UnsupportedPlan, match=r"ZeroConcentratedDivergence.*Use"):
        charged(measurement, 1, client, dataset)([1])
    assert losses(client, dataset) == []


def test_a_release_without_a_bound_is_refused() -> None:
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    measurement = space >> dp.t.then_count() >> dp.m.then_laplace(scale=0.0)
    with pytest.raises(UnsupportedPlan, match="no bound"):
        mechanism_of(measurement, 1)


def test_a_compositor_inside_a_query_is_charged_once(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    dataset = new_dataset(kind="pure", epsilon=1.0)
    context = BudgetedContext.wrap(unbounded(ages), client, dataset)
    inner = context.query(epsilon=1.0).compositor(split_evenly_over=2).release()
    inner.query().count().laplace().release()
    inner.query().count().laplace().release()
    assert [float(mechanism["epsilon"]) for mechanism in losses(client, dataset)] == [1.0]


def test_an_odometer_inside_a_query_has_no_cost_to_charge(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    context = BudgetedContext.wrap(unbounded(ages), client, new_dataset())
    odometer = dp.c.make_fully_adaptive_composition(*context.accountant.input_space, dp.max_divergence())
    with pytest.raises(UnsupportedPlan, match="grows with later queries"):
        context(odometer)


@pytest.mark.parametrize(
    ("metric", "adjacency"),
    [
        (dp.symmetric_distance(), "add_remove"),
        (dp.insert_delete_distance(), "add_remove"),
        (dp.change_one_distance(), "replace_one"),
        (dp.hamming_distance(), "replace_one"),
    ],
    ids=str,
)
def test_the_metric_says_the_adjacency(
    client: Client, new_dataset: NewDataset, ages: list[int], metric: dp.Metric, adjacency: str
) -> None:
    measurement = dp.m.make_user_measurement(
        dp.vector_domain(dp.atom_domain(T=int)), metric, dp.max_divergence(), function=len, privacy_map=float
    )
    charged(measurement, 1, client, new_dataset(adjacency))(ages)
    other = new_dataset("replace_one" if adjacency == "add_remove" else "add_remove")
    with pytest.raises(NotValidUnderAdjacency):
        charged(measurement, 1, client, other)(ages)


def test_another_metric_needs_the_adjacency_said(client: Client, new_dataset: NewDataset) -> None:
    measurement = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=10.0)
    dataset = new_dataset()
    with pytest.raises(UnsupportedPlan, match="pass adjacency="):
        charged(measurement, 1, client, dataset)(100)
    charged(measurement, 1, client, dataset, adjacency="add_remove")(100)
    assert len(losses(client, dataset)) == 1


def test_an_unknown_dataset_answers_nothing(client: Client, ages: list[int]) -> None:
    context = BudgetedContext.wrap(unbounded(ages), client, "never-created")
    with pytest.raises(UnknownDataset):
        context.query(epsilon=0.5).count().laplace().release()


def test_a_charged_measurement_is_not_chained(client: Client) -> None:
    measurement = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=10.0)
    with pytest.raises(TypeError, match="then wrap"):
        charged(measurement, 1, client, "d") >> (lambda value: value)


def test_a_budgeted_context_is_only_made_by_wrapping(ages: list[int]) -> None:
    with pytest.raises(TypeError, match=r"BudgetedContext\.wrap"):
        BudgetedContext.compositor(
            data=ages, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(epsilon=1.0)
        )

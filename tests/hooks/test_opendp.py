"""The OpenDP runner on a real table, against a real service: charged by the map, before data is seen."""

import gc
import math
import multiprocessing
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import opendp.prelude as dp
import pytest
from sklearn.datasets import load_diabetes

from odometer_client import BudgetExceeded, Client
from odometer_client.errors import NotValidUnderAdjacency, UnknownDataset, UnsupportedPlan
from odometer_client.queries.opendp import BudgetedContext, charged, mechanism_of, mechanisms_of, not_below

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
    found = Fraction(losses(client, dataset)[0]["epsilon"])
    assert Fraction(measurement.map(1)) <= found <= Fraction(repr(math.nextafter(measurement.map(1), 2)))
    assert measurement.map(1) >= 100 / 333.3


def test_no_charge_is_below_the_map_in_any_digit() -> None:
    """A float's shortest decimal may lie below it: then the next one is charged."""
    dice, below = random.Random(1), 0
    for _ in range(300):
        scale = dice.uniform(0.5, 500.0)
        measurement = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=scale)
        true = measurement.map(1)
        (mechanism,) = mechanisms_of(measurement, 1)
        charged_ = Fraction(repr(mechanism.document()["epsilon"]))
        assert charged_ >= Fraction(true)
        assert charged_ >= Fraction(repr(true))
        assert mechanism.document()["epsilon"] <= math.nextafter(true, math.inf)
        below += Fraction(repr(true)) < Fraction(true)
    assert below > 50  # so that this can fail
    assert (not_below(0.5), not_below(0.1)) == (0.5, 0.10000000000000002)


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
    measure, bound = dp.loss_of(epsilon=1.0, delta=1e-7)
    context = dp.Context.compositor(
        data=ages,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=(measure, bound),
        split_evenly_over=2,
    )
    with BudgetedContext.wrap(context, client, dataset) as budgeted:
        budgeted.query().count().gaussian().release()
    ((item, used),) = held(client, dataset)
    assert (item["mechanism"]["kind"], item["count"], used) == ("approximate", 2, 1)
    assert float(item["mechanism"]["epsilon"]) == pytest.approx(0.5)
    assert float(item["mechanism"]["delta"]) == pytest.approx(5e-8)


def held(client: Client, dataset: str) -> list[tuple[dict[str, Any], int]]:
    """The charges of all settled holds, with how much of each was used."""
    entries = [item["entry"] for item in client.ledger(dataset)]
    return [
        (item, used)
        for entry in entries
        if entry["type"] == "settled"
        for item, used in zip(entry["held"]["command"]["charges"], entry["used"], strict=True)
    ]


@pytest.mark.parametrize("kind", ["zcdp", "pure"])
def test_a_delta_beside_the_loss_is_charged_with_it(
    client: Client, new_dataset: NewDataset, kind: str
) -> None:
    """All or nothing: ρ as zcdp and δ as approximate of ε 0, or both as approximate; without a δ, no such."""
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    noise = dp.m.then_gaussian(scale=10.0) if kind == "zcdp" else dp.m.then_laplace(scale=10.0)
    measurement = dp.c.make_approximate(space >> dp.t.then_count() >> noise)
    dataset = new_dataset(kind="approximate", epsilon=4.0, delta=1e-5)
    charged(measurement, 1, client, dataset)([1])
    assert [one["kind"] for one in losses(client, dataset)] == [kind]

    loss = ((dp.zero_concentrated_divergence(), 0.1) if kind == "zcdp" else (dp.max_divergence(), 0.1))[0]
    stated = dp.m.make_user_measurement(
        *space, dp.approximate(loss), function=len, privacy_map=lambda _: (0.1, 1e-7)
    )
    charged(stated, 1, client, dataset)([1])
    entry = list(client.ledger(dataset))[-1]["entry"]
    found = [(one["mechanism"], one["count"]) for one in entry["command"]["charges"]]
    delta = repr(not_below(1e-7))
    if kind == "zcdp":
        assert found == [
            ({"kind": "zcdp", "rho": "0.10000000000000002"}, 1),
            ({"kind": "approximate", "epsilon": "0.0", "delta": delta}, 1),
        ]
    else:
        assert found == [({"kind": "approximate", "epsilon": "0.10000000000000002", "delta": delta}, 1)]


def split(ages: list[int], loss: Any, **how: Any) -> dp.Context:
    return dp.Context.compositor(
        data=ages, privacy_unit=dp.unit_of(contributions=1), privacy_loss=loss, **how
    )


@pytest.mark.parametrize("shares", [2, 3, 6, 7, 9, 10, 11])
@pytest.mark.parametrize("epsilon", [1.0, 0.1, 2.302585092994046])
def test_n_of_n_shares_go_out_where_the_budget_is_the_contexts_own(
    client: Client, new_dataset: NewDataset, ages: list[int], shares: int, epsilon: float
) -> None:
    dataset = new_dataset(kind="pure", epsilon=epsilon)
    context = split(ages, dp.loss_of(epsilon=epsilon), split_evenly_over=shares)
    with BudgetedContext.wrap(context, client, dataset) as budgeted:
        for _ in range(shares):
            budgeted.query().count().laplace().release()
    assert client.odometer(dataset)["totals"]["pure"] <= epsilon
    assert [one["type"] for one in ledger(client, dataset)][-2:] == ["held", "settled"]


def ledger(client: Client, dataset: str) -> list[dict[str, Any]]:
    return [item["entry"] for item in client.ledger(dataset)]


@pytest.mark.parametrize(
    "loss", [dp.loss_of(rho=0.1), dp.loss_of(rho=0.1, delta=1e-7), dp.loss_of(epsilon=1.0, delta=1e-7)]
)
def test_shares_that_are_not_asked_come_back(
    client: Client, new_dataset: NewDataset, ages: list[int], loss: Any
) -> None:
    dataset = new_dataset(kind="approximate", epsilon=4.0, delta=1e-5)
    with BudgetedContext.wrap(split(ages, loss, split_by_weights=[1, 2, 1]), client, dataset) as budgeted:
        budgeted.query().count().gaussian().release()
        whole = client.odometer(dataset)["totals"]
    spent = client.odometer(dataset)["totals"]
    name = "rho" if loss[0] != dp.loss_of(epsilon=1.0, delta=1e-7)[0] else "pure"
    assert spent[name] == pytest.approx(whole[name] / 4)
    assert spent["delta"] == pytest.approx(whole["delta"] / 4)


def test_queries_as_they_come_draw_from_the_whole_and_the_rest_comes_back(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    dataset = new_dataset(kind="pure", epsilon=2.0)
    with BudgetedContext.wrap(split(ages, dp.loss_of(epsilon=1.0)), client, dataset) as budgeted:
        for _ in range(3):
            budgeted.query(epsilon=0.25).count().laplace().release()
            assert client.odometer(dataset)["totals"]["pure"] == 1.0
    assert client.odometer(dataset)["totals"]["pure"] == 0.75


def test_ten_tenths_go_out_of_one(client: Client, new_dataset: NewDataset, ages: list[int]) -> None:
    """Where what was asked does not fit beside the hold, the hold stays: it paid for all of it."""
    dataset = new_dataset(kind="pure", epsilon=1.0)
    with BudgetedContext.wrap(split(ages, dp.loss_of(epsilon=1.0)), client, dataset) as budgeted:
        for _ in range(9):
            budgeted.query(epsilon=0.1).count().laplace().release()
    assert client.odometer(dataset)["totals"]["pure"] == 1.0


def test_a_context_that_was_not_asked_costs_nothing(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    dataset = new_dataset(kind="pure", epsilon=0.5)
    BudgetedContext.wrap(split(ages, dp.loss_of(epsilon=1.0)), client, dataset).close()
    assert [one["type"] for one in ledger(client, dataset)] == ["opened"]


def test_a_context_that_does_not_fit_is_refused_before_data_is_seen(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    dataset = new_dataset(kind="pure", epsilon=0.5)
    budgeted = BudgetedContext.wrap(
        split(ages, dp.loss_of(epsilon=1.0), split_evenly_over=2), client, dataset
    )
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            budgeted.query().count().laplace().release()
    assert len(budgeted.remaining_privacy_loss()) == 2


def test_a_context_that_is_gone_gives_back_what_it_did_not_ask(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    dataset = new_dataset(kind="pure", epsilon=1.0)
    budgeted = BudgetedContext.wrap(
        split(ages, dp.loss_of(epsilon=1.0), split_evenly_over=4), client, dataset
    )
    budgeted.query().count().laplace().release()
    del budgeted
    gc.collect()
    assert client.odometer(dataset)["totals"]["pure"] == pytest.approx(0.25)


def test_a_query_that_fails_has_used_its_share(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    """And what OpenDP then answers beyond the shares is charged alone."""
    dataset = new_dataset(kind="pure", epsilon=1.5)
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()

    def fails(_: Any) -> int:
        raise RuntimeError("after looking")

    failing = dp.m.make_user_measurement(
        *space, dp.max_divergence(), function=fails, privacy_map=lambda _: 0.5
    )
    with BudgetedContext.wrap(
        split(ages, dp.loss_of(epsilon=1.0), split_evenly_over=2), client, dataset
    ) as one:
        with pytest.raises(Exception, match="after looking"):
            one(failing)
        one.query().count().laplace().release()
        assert losses(client, dataset) == []
        one.query().count().laplace().release()
    assert [float(mechanism["epsilon"]) for mechanism in losses(client, dataset)] == [pytest.approx(0.5)]
    assert client.odometer(dataset)["totals"]["pure"] == pytest.approx(1.5)


def test_a_query_that_asks_too_much_is_refused_and_costs_nothing(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    dataset = new_dataset(kind="pure", epsilon=3.0)
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    dear = space >> dp.t.then_count() >> dp.m.then_laplace(scale=0.5)
    for how in ({"split_evenly_over": 2}, {}):
        context = split(ages, dp.loss_of(epsilon=1.0), **how)
        budgeted = BudgetedContext.wrap(context, client, dataset)
        with pytest.raises(dp.OpenDPException):
            budgeted(dear)
        budgeted.close()
    assert client.odometer(dataset)["totals"]["pure"] == 0


def _asks(budgeted: BudgetedContext) -> None:
    budgeted.query().count().laplace().release()
    budgeted.close()


def test_after_a_fork_each_process_holds_for_itself(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    dataset = new_dataset(kind="pure", epsilon=2.0)
    budgeted = BudgetedContext.wrap(
        split(ages, dp.loss_of(epsilon=1.0), split_evenly_over=4), client, dataset
    )
    budgeted.query().count().laplace().release()
    child = multiprocessing.get_context("fork").Process(target=_asks, args=(budgeted,))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    budgeted.close()
    assert client.odometer(dataset)["totals"]["pure"] == pytest.approx(0.5)
    assert [one["type"] for one in ledger(client, dataset)].count("held") == 2


def test_a_context_that_was_closed_charges_each_query_alone(
    client: Client, new_dataset: NewDataset, ages: list[int]
) -> None:
    dataset = new_dataset(kind="pure", epsilon=2.0)
    budgeted = BudgetedContext.wrap(
        split(ages, dp.loss_of(epsilon=1.0), split_evenly_over=4), client, dataset
    )
    budgeted.query().count().laplace().release()
    budgeted.close()
    budgeted.close()
    budgeted.query().count().laplace().release()
    assert len(losses(client, dataset)) == 1


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

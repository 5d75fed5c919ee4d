"""What make_private finds before the first step, and what the ledger has of steps it did not see."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from odometer_client import Client
from odometer_client.base import UsedUp
from odometer_client.errors import Unauthenticated, UnknownDataset, UnsupportedPlan
from odometer_client.rates import dp_sgd_step
from odometer_client.testing import Service
from odometer_client.training.opacus import BudgetedPrivacyEngine, OpacusGuard

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore:Optimal order is the"),
]
NewDataset = Callable[..., str]
NewJob = Callable[..., Any]
ChargedSteps = Callable[[str], int]


def small(engine: PrivacyEngine, rows: int = 200, **options: Any) -> Any:
    """What make_private gives for a batch of 50 of so many rows."""
    model = nn.Linear(8, 2)
    data = TensorDataset(torch.randn(rows, 8), torch.randint(0, 2, (rows,)))
    arguments = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, **options}
    return engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=50),
        **arguments,
    )


def train(made: Any, steps: int) -> None:
    model, optimizer, loader = made
    for number, (x, y) in enumerate(loader):
        if number == steps:
            break
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


# -- the adjacency


@pytest.mark.parametrize("rows", [200, 1717])
def test_on_an_add_remove_dataset_a_job_is_refused_with_two_constant_lines_that_work(
    new_dataset: NewDataset, client: Client, charged_steps: ChargedSteps, rows: int
) -> None:
    """They are the same however many rows there are: that number is private."""
    dataset = new_dataset("add_remove")
    with pytest.raises(UnsupportedPlan) as refusal:
        small(BudgetedPrivacyEngine(client=client, dataset=dataset), rows)
    lines = [line.strip().rstrip(",") for line in str(refusal.value).splitlines() if line.startswith("    ")]
    assert lines == ["sample_rate=0.1", "expected_batch_size=64"]
    assert charged_steps(dataset) == 0
    stated = {name: float(value) for name, value in (line.split("=") for line in lines)}
    engine = BudgetedPrivacyEngine(client=client, dataset=dataset, **stated)
    train(small(engine, rows), 3)
    engine.close()
    assert engine.guard.adjacency == "add_remove"
    assert charged_steps(dataset) == 3


@pytest.mark.parametrize("rows", [200, 201, 7])
def test_stated_constants_do_not_depend_on_the_number_of_rows(
    new_dataset: NewDataset, client: Client, rows: int
) -> None:
    """Opacus has 1/4, 50 and 4 for 200 rows, and 1/5, 40 and 5 for 201."""
    engine = BudgetedPrivacyEngine(
        client=client, dataset=new_dataset("add_remove"), sample_rate=0.25, expected_batch_size=50
    )
    made = small(engine, rows)
    _, optimizer, loader = made
    assert (loader.batch_sampler.sample_rate, optimizer.expected_batch_size, len(loader)) == (0.25, 50, 4)
    train(made, 2)
    assert [rate for _, rate, _ in engine.accountant.history] == [0.25]


@pytest.mark.parametrize("missing", ["sample_rate", "expected_batch_size"])
def test_one_constant_alone_is_not_enough(new_dataset: NewDataset, client: Client, missing: str) -> None:
    stated = {"sample_rate": 0.25, "expected_batch_size": 50}
    del stated[missing]
    with pytest.raises(UnsupportedPlan, match=rf"two constants .*\({missing} missing\)"):
        small(BudgetedPrivacyEngine(client=client, dataset=new_dataset("add_remove"), **stated))


def test_stated_constants_that_are_not_used_are_refused(
    new_dataset: NewDataset, client: Client, charged_steps: ChargedSteps
) -> None:
    dataset = new_dataset("add_remove")
    made = small(PrivacyEngine())
    with pytest.raises(UnsupportedPlan, match=r"draws at another rate, and .* is 0\.2$"):
        OpacusGuard(made[1], made[2], client, dataset, sample_rate=0.2, expected_batch_size=50)
    engine = BudgetedPrivacyEngine(client=client, dataset=dataset, sample_rate=0.25, expected_batch_size=50)
    made = small(engine)
    made[2].batch_sampler.sample_rate = 0.2
    with pytest.raises(UnsupportedPlan, match=r"draws at another rate, and .* is 0\.25$"):
        train(made, 1)
    public = small(PrivacyEngine())
    with pytest.raises(UnsupportedPlan, match=r"draws at 0\.25"):
        OpacusGuard(public[1], public[2], client, new_dataset("zero_out"), sample_rate=0.2)
    assert charged_steps(dataset) == 0


def test_steps_after_the_refused_one_are_counted_without_it(
    new_dataset: NewDataset, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, when the guard is closed: none where the refused step was the last."""
    for more in (0, 1, 2):
        caplog.clear()
        dataset = new_dataset("zero_out", kind="renyi", order=8, epsilon=1e-6)
        engine = BudgetedPrivacyEngine(client=client, dataset=dataset, on_exhausted="stop")
        train(small(engine), 1 + more)
        engine.close()
        said = [line for line in caplog.messages if "after the refused one did nothing" in line]
        expected = [[], ["1 step"], ["2 steps"]][more]
        assert said == [f"{steps} after the refused one did nothing" for steps in expected]


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        ("replace_one", None, "replace_one"),
        ("zero_out", "add_remove", "leave adjacency out"),
        ("add_remove", "zero_out", "zero_out"),
    ],
)
def test_another_adjacency_is_refused(
    new_dataset: NewDataset, client: Client, theirs: str, ours: Any, said: str
) -> None:
    engine = BudgetedPrivacyEngine(client=client, dataset=new_dataset(theirs), adjacency=ours)
    with pytest.raises(UnsupportedPlan, match=said):
        small(engine)


# -- what fits


def test_a_wrong_key_and_a_wrong_dataset_are_found_before_the_model_is_touched(service: Service) -> None:
    model = nn.Linear(8, 2)
    data = TensorDataset(torch.randn(100, 8), torch.randint(0, 2, (100,)))
    for key, error in (
        (str(service.admin_key)[:-1] + "x", Unauthenticated),
        (service.admin_key, UnknownDataset),
    ):
        with Client(service.url, key) as client, pytest.raises(error):
            BudgetedPrivacyEngine(client=client, dataset="none").make_private(
                module=model,
                optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                data_loader=DataLoader(data, batch_size=50),
                noise_multiplier=1.0,
                max_grad_norm=1.0,
            )
    assert not hasattr(model, "autograd_grad_sample_hooks")


def test_the_plan_says_what_fits_and_the_noise_with_which_all_of_it_would(
    new_training_dataset: NewDataset, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """A budget of 4 for a plan calibrated to 4: the guarantee holds for plans that change, which costs."""
    dataset = new_training_dataset(kind="approximate", epsilon=4, delta=1e-5)
    engine = BudgetedPrivacyEngine(client=client, dataset=dataset)
    model = nn.Linear(8, 2)
    data = TensorDataset(torch.randn(1000, 8), torch.randint(0, 2, (1000,)))
    engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=50),
        target_epsilon=4.0,
        target_delta=1e-5,
        epochs=3,
        max_grad_norm=1.0,
    )
    plan = engine.guard.plan
    assert plan.steps == 60
    assert not plan.fits
    assert 0 < plan.largest_count < 60
    assert f"{plan.largest_count} of 60 planned steps fit" in caplog.text
    assert plan.least_noise is not None
    assert client.check(dataset, dp_sgd_step(plan.least_noise, 1 / 20), 60, adjacency="zero_out").fits
    again = BudgetedPrivacyEngine(client=client, dataset=dataset)
    small(again, 1000, noise_multiplier=plan.least_noise, epochs=3)
    assert again.guard.plan.fits
    assert client.odometer(dataset)["sequence"] == 1


def test_a_plan_of_unknown_length_says_how_many_steps_fit(
    new_training_dataset: NewDataset, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    engine = BudgetedPrivacyEngine(client=client, dataset=new_training_dataset(kind="zcdp", rho=10))
    with caplog.at_level(logging.INFO, logger="odometer_client"):
        small(engine)
    assert engine.guard.plan.largest_count > 1
    assert f"{engine.guard.plan.largest_count} steps fit" in caplog.text


# -- accountants and their history


def test_opacus_own_accountant_stays_and_the_services_number_is_beside_it(
    new_training_dataset: NewDataset, client: Client
) -> None:
    dataset = new_training_dataset()
    engine = BudgetedPrivacyEngine(client=client, dataset=dataset)
    train(small(engine), 3)
    assert isinstance(engine.accountant, PRVAccountant)
    alone = PRVAccountant()
    alone.history = [(1.0, 0.25, 3)]
    assert engine.get_epsilon(1e-5) == alone.get_epsilon(1e-5)
    assert engine.guard.epsilon == client.odometer(dataset).reading("if_stopped_now")["value"]


@pytest.fixture
def plain_checkpoint(tmp_path: Any) -> Any:
    """Of 3 steps that no ledger saw."""
    engine = PrivacyEngine()
    made = small(engine)
    train(made, 3)
    engine.save_checkpoint(path=tmp_path / "plain.pt", module=made[0], optimizer=made[1])
    return tmp_path / "plain.pt"


def test_history_that_no_ledger_saw_is_refused_or_charged(
    new_training_dataset: NewDataset, client: Client, charged_steps: ChargedSteps, plain_checkpoint: Any
) -> None:
    dataset = new_training_dataset()
    engine = BudgetedPrivacyEngine(client=client, dataset=dataset)
    made = small(engine)
    files = {"path": plain_checkpoint, "module": made[0], "optimizer": made[1]}
    with pytest.raises(UnsupportedPlan, match="3 steps"):
        engine.load_checkpoint(**files)
    with pytest.raises(UnsupportedPlan, match="3 steps"):
        train(made, 1)
    assert charged_steps(dataset) == 0
    engine.load_checkpoint(**files, unseen_history="charge")
    train(made, 2)
    engine.close()
    assert charged_steps(dataset) == 3 + 2
    assert engine.charge_history() == 0


def test_what_was_charged_on_request_is_known_in_later_checkpoints(
    new_training_dataset: NewDataset,
    client: Client,
    charged_steps: ChargedSteps,
    plain_checkpoint: Any,
    tmp_path: Any,
) -> None:
    dataset = new_training_dataset()
    first = BudgetedPrivacyEngine(client=client, dataset=dataset)
    made = small(first)
    first.load_checkpoint(path=plain_checkpoint, module=made[0], optimizer=made[1], unseen_history="charge")
    train(made, 2)
    first.save_checkpoint(path=tmp_path / "both.pt", module=made[0], optimizer=made[1])
    second = BudgetedPrivacyEngine(client=client, dataset=dataset)
    made = small(second)
    second.load_checkpoint(path=tmp_path / "both.pt", module=made[0], optimizer=made[1])
    train(made, 1)
    assert charged_steps(dataset) == 3 + 2 + 1


def test_history_put_into_the_accountant_by_hand_is_refused_at_the_next_step(
    new_training_dataset: NewDataset, client: Client
) -> None:
    engine = BudgetedPrivacyEngine(client=client, dataset=new_training_dataset())
    made = small(engine)
    engine.accountant.step(noise_multiplier=1.0, sample_rate=0.5)
    with pytest.raises(UnsupportedPlan, match="charge_history"):
        train(made, 1)
    assert engine.charge_history() == 1
    train(made, 1)


# -- sweeps and groups


def test_the_runs_of_a_sweep_take_their_steps_out_of_its_hold(
    new_training_dataset: NewDataset, client: Client, charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset(kind="zcdp", rho=100)
    step = dp_sgd_step(1.0, 0.25)
    with client.sweep(dataset, step, 3, runs=4, name="rates", expires_in_s=600) as sweep:
        for _ in range(2):
            engine = BudgetedPrivacyEngine(client=client, dataset=dataset, sweep=sweep)
            made = small(engine)
            assert engine.guard.plan.largest_count == 3
            train(made, 3)
            assert engine.guard.steps == 3
        assert sweep.started == 2
        with pytest.raises(UsedUp):
            train(made, 1)
        other = BudgetedPrivacyEngine(client=client, dataset=dataset, sweep=sweep)
        with pytest.raises(UnsupportedPlan, match="does not hold this step"):
            train(small(other, noise_multiplier=0.9), 1)
        assert sweep.started == 2
    entries = [item["entry"] for item in client.ledger(dataset, after=1)]
    assert [entry["type"] for entry in entries] == ["held", "settled"]
    assert entries[1]["used"] == [6]


def test_a_run_counts_in_its_groups_odometer(new_training_dataset: NewDataset, client: Client) -> None:
    dataset = new_training_dataset(kind="zcdp", rho=100)
    engine = BudgetedPrivacyEngine(client=client, dataset=dataset, group="rates")
    train(small(engine), 3)
    engine.close()
    assert client.odometer(dataset, scope="group/rates")["totals"] == client.odometer(dataset)["totals"]

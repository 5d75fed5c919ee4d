"""The Opacus guard on real training, against a real service: what is charged is what goes out."""

import copy
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.schedulers import ExponentialNoise
from torch.utils.data import DataLoader, Subset, TensorDataset, WeightedRandomSampler

from odometer_accountant.numerics.grid import CURRENT_GRID
from odometer_client import BudgetExceeded, Client
from odometer_client.errors import ReplayedCharge, UnsupportedPlan
from odometer_client.rates import drawn_rate
from odometer_client.training.opacus import OpacusGuard

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore:Optimal order is the"),
]
ORDERS = [order for order in CURRENT_GRID.orders.tolist() if order <= 512]
"""The service's Rényi orders that Opacus computes without overflow."""
SIX_STEPS = {"kind": "renyi", "order": 8, "epsilon": 1.43}
"""Fits six steps of noise multiplier 1 at a sampling rate of 1/29."""

NewDataset = Callable[..., str]
NewJob = Callable[..., Any]
ChargedSteps = Callable[[str], int]


def same(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("physical", [None, 16])
@pytest.mark.parametrize(
    "options",
    [
        {"grad_sample_mode": "hooks"},
        {"grad_sample_mode": "ghost"},
        {"grad_sample_mode": "functorch"},
        {"clipping": "per_layer", "max_grad_norm": [0.5] * 4},
    ],
    ids=["hooks", "ghost", "functorch", "per_layer"],
)
def test_training_stops_where_the_budget_does(
    new_training_dataset: NewDataset,
    new_job: NewJob,
    charged_steps: ChargedSteps,
    client: Client,
    options: dict[str, Any],
    physical: int | None,
    num_workers: int,
) -> None:
    dataset = new_training_dataset(**SIX_STEPS)
    job = new_job(dataset, num_workers=num_workers, **options)
    fits = client.check(dataset, job.mechanism, 1).would_fit["largest_count"]
    job.run(physical=physical)
    assert job.guard.stopped
    assert fits == job.guard.steps == job.guard.charged == charged_steps(dataset) == 6
    assert [count for *_, count in job.engine.accountant.history] == [6]
    stopped_at = job.weights()
    job.run(3)
    assert same(stopped_at, job.weights())
    assert all(p.grad is None and p.summed_grad is None for p in job.optimizer.params)
    assert charged_steps(dataset) == 6


def test_a_refused_step_leaves_the_weights_and_drops_the_gradients(
    new_training_dataset: NewDataset, new_job: NewJob
) -> None:
    job = new_job(new_training_dataset(kind="renyi", order=8, epsilon=1e-6), engine={"on_exhausted": "stop"})
    before = job.weights()
    job.run(1)
    assert job.guard.steps == 0
    assert same(before, job.weights())
    assert all(
        p.grad is None and p.grad_sample is None and p.summed_grad is None for p in job.optimizer.params
    )


def test_in_raise_mode_the_refusal_comes_out_each_time(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset(**SIX_STEPS)
    job = new_job(dataset, engine={"on_exhausted": "raise"})
    with pytest.raises(BudgetExceeded):
        job.run(20)
    stopped_at = job.weights()
    with pytest.raises(BudgetExceeded):
        job.run(1)
    assert job.steps_asked == 8
    assert same(stopped_at, job.weights())
    assert charged_steps(dataset) == 6


def test_the_guards_batches_end_with_the_budget(new_training_dataset: NewDataset, new_job: NewJob) -> None:
    job = new_job(new_training_dataset(**SIX_STEPS))
    for images, labels in job.guard.batches(job.loader):
        job.step(images, labels)
    assert job.steps_asked == 7
    assert job.guard.steps == 6


def test_virtual_steps_are_not_charged(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset)
    job.run(physical=16)
    job.guard.close()
    assert job.steps_asked > 90
    assert job.guard.steps == charged_steps(dataset) == len(job.loader) == 29


def test_an_empty_batch_is_a_release(
    new_training_dataset: NewDataset, new_job: NewJob, digits: TensorDataset, charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset, rows=Subset(digits, range(100)), batch_size=1)
    job.run()
    job.guard.close()
    assert job.batch_sizes.count(0) > 10
    assert charged_steps(dataset) == len(job.batch_sizes) == 100


def test_the_rate_is_the_samplers(new_training_dataset: NewDataset, new_job: NewJob, client: Client) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset)
    job.run(1)
    *_, last = client.ledger(dataset)
    mechanism = last["entry"]["command"]["charges"][0]["mechanism"]
    assert float(mechanism["sampling_rate"]) == drawn_rate(1 / 29)  # and not 64/1797


def test_a_weighted_sampler_is_charged_at_the_rate_that_replaced_it(
    new_training_dataset: NewDataset, new_job: NewJob, digits: TensorDataset, client: Client
) -> None:
    weighted = WeightedRandomSampler([1.0] * len(digits), num_samples=128)
    job = new_job(new_training_dataset(), loader=DataLoader(digits, batch_size=16, sampler=weighted))
    assert job.mechanism.sampling_rate == drawn_rate(1 / 8) == 1 / 8
    job.run(1)
    assert job.batch_sizes[0] > 128  # Opacus draws an eighth of all rows, whatever the sampler said


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_loader_that_is_not_poisson_is_refused(
    new_training_dataset: NewDataset, new_job: NewJob, client: Client, digits: TensorDataset, *, shuffle: bool
) -> None:
    dataset = new_training_dataset()
    with pytest.raises(UnsupportedPlan, match="poisson_sampling=False"):
        new_job(dataset, poisson_sampling=False)
    job = new_job(dataset)
    fixed = DataLoader(digits, batch_size=64, shuffle=shuffle)
    with pytest.raises(UnsupportedPlan, match="DPDataLoader"):
        OpacusGuard(job.optimizer.original_optimizer, fixed, client, dataset)


def test_calibration_charges_nothing_and_training_its_result(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps, client: Client
) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset, target_epsilon=4.0, target_delta=1e-5, epochs=2, engine={"accountant": "rdp"})
    assert charged_steps(dataset) == 0
    job.run(58)
    job.guard.close()
    assert charged_steps(dataset) == 58
    reading = client.odometer(dataset).reading("fixed_plan")  # on other orders than Opacus calibrates with
    assert reading["value"] == pytest.approx(4.0, rel=0.01)


def test_a_noise_schedule_is_charged_step_by_step(
    new_training_dataset: NewDataset, new_job: NewJob, client: Client
) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset)
    job.run(1)
    schedule = ExponentialNoise(job.optimizer, gamma=0.9)
    for _ in range(4):
        job.run(1)
        schedule.step()
    entries = [item["entry"] for item in client.ledger(dataset, after=1)]
    assert [entry["type"] for entry in entries] == ["charged", "held", "settled", *["charged"] * 3]
    charges = [entry["command"]["charges"][0] for entry in entries if "command" in entry]
    noise = [float(charge["mechanism"]["base"]["noise_multiplier"]) for charge in charges]
    assert noise == pytest.approx([1.0, 1.0, 0.9, 0.81, 0.729])
    assert [charge["count"] for charge in charges] == [1, 2, 1, 1, 1]
    assert entries[2]["used"] == [1]


def test_batches_accumulated_for_one_step_are_refused(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset)
    job.model.allow_grad_accumulation()
    before = job.weights()
    for images, labels in list(job.loader)[:2]:
        job.criterion(job.model(images), labels).backward()
    with pytest.raises(UnsupportedPlan, match="2 Poisson batches"):
        job.optimizer.step()
    assert same(before, job.weights())
    assert charged_steps(dataset) == 0


ADAPTIVE = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 5.0,
}


def test_adaptive_clipping_is_refused_unless_asked_for(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset()
    with pytest.raises(UnsupportedPlan, match="allow_adaptive_clipping"):
        new_job(dataset, **ADAPTIVE)
    assert charged_steps(dataset) == 0
    allowed = new_job(dataset, engine={"allow_adaptive_clipping": True}, **ADAPTIVE)
    allowed.run(4)
    allowed.guard.close()
    assert allowed.mechanism.base.noise_multiplier == 1.0  # the one before Opacus shares it out
    assert charged_steps(dataset) == 4


def test_going_back_to_a_checkpoint_charges_the_steps_again(
    new_training_dataset: NewDataset,
    new_job: NewJob,
    charged_steps: ChargedSteps,
    client: Client,
    tmp_path: Any,
) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset, engine={"block": 1})
    job.run(3)
    job.engine.save_checkpoint(path=tmp_path / "run.pt", module=job.model, optimizer=job.optimizer)
    job.run(5)
    resumed = new_job(dataset, engine={"block": 1})
    resumed.engine.load_checkpoint(
        path=tmp_path / "run.pt", module=resumed.model, optimizer=resumed.optimizer
    )
    assert (resumed.guard.run_id, resumed.guard.steps) == (job.guard.run_id, 3)
    resumed.run(5)
    assert resumed.engine.accountant.history == [(1.0, 1 / 29, 8)]
    assert resumed.guard.steps == 8
    assert charged_steps(dataset) == 13
    keys = [item["entry"]["key"] for item in client.ledger(dataset, after=1)]
    assert len(set(keys)) == 13


def test_a_resumed_run_does_not_use_steps_that_another_process_paid_for(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset)
    job.run(2)
    resumed = new_job(dataset)
    resumed.guard.load_state_dict(job.guard.state_dict())
    assert charged_steps(dataset) == 2  # what was held and not used was given back
    resumed.run(2)
    assert charged_steps(dataset) == 2 + 1 + 2


def test_closing_early_gives_back_exactly_what_was_not_used(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps, client: Client
) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset, engine={"block": 50})
    with job.guard:
        job.run(9)
        assert charged_steps(dataset) == job.guard.charged == 1 + 2 + 4 + 8
    assert charged_steps(dataset) == job.guard.charged == job.guard.steps == 9
    assert not client.holds(dataset)
    by_hand = new_training_dataset()
    client.charge(by_hand, job.mechanism, 9)
    assert client.odometer(dataset)["totals"] == client.odometer(by_hand)["totals"]


def test_the_engine_closes_its_guards_and_a_later_step_is_paid_for(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset, engine={"block": 10})
    job.run(2)
    job.engine.close()
    assert charged_steps(dataset) == 2
    job.run(1)
    assert charged_steps(dataset) == 2 + 4


def test_an_expired_block_is_spent_its_steps_still_run_and_closing_says_so(
    new_training_dataset: NewDataset,
    new_job: NewJob,
    charged_steps: ChargedSteps,
    client: Client,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dataset = new_training_dataset()
    job = new_job(dataset, engine={"hold_expires_in_s": 1})
    job.run(4)  # in blocks of 1, 2 and 4
    deadline = time.monotonic() + 30
    while client.holds(dataset):  # until the service says that it has expired
        assert time.monotonic() < deadline
    job.guard.state_dict()
    assert "expired: what it held stays spent" in caplog.text
    job.run(3)
    job.guard.close()
    assert job.guard.steps == job.guard.charged == charged_steps(dataset) == 7


def test_a_checkpoint_of_another_dataset_is_refused(
    new_training_dataset: NewDataset, new_job: NewJob
) -> None:
    job, other = new_job(new_training_dataset()), new_job(new_training_dataset())
    with pytest.raises(ValueError, match="this guard charges"):
        other.guard.load_state_dict(job.guard.state_dict())


def test_two_processes_with_the_same_keys_stop(
    new_training_dataset: NewDataset,
    new_job: NewJob,
    charged_steps: ChargedSteps,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)  # as if randomness had failed
    dataset = new_training_dataset()
    new_job(dataset, engine={"run_id": "run"}).run(1)
    twin = new_job(dataset, engine={"run_id": "run"})
    before = twin.weights()
    with pytest.raises(ReplayedCharge):
        twin.run(1)
    assert same(before, twin.weights())
    assert charged_steps(dataset) == 1


def test_a_guard_stands_on_opacus_own_engine_too(
    new_training_dataset: NewDataset, client: Client, digits: TensorDataset, charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset(**SIX_STEPS)
    model = torch.nn.Linear(64, 10)
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(digits, batch_size=64),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    guard = OpacusGuard(optimizer, loader, client, dataset, block=100)
    for images, labels in guard.batches(loader):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    assert guard.steps == charged_steps(dataset) == 6


def test_an_optimizer_has_one_guard(
    new_training_dataset: NewDataset, new_job: NewJob, client: Client
) -> None:
    job = new_job(new_training_dataset())
    with pytest.raises(ValueError, match="twice"):
        OpacusGuard(job.optimizer, job.loader, client, job.guard.dataset)


def test_a_step_is_refused_when_another_hook_took_the_guards_place(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps
) -> None:
    """Opacus keeps one step hook: a later one silently replaces it, and steps would go out uncharged."""
    dataset = new_training_dataset()
    job = new_job(dataset)
    job.optimizer.attach_step_hook(lambda _: None)
    before = job.weights()
    with pytest.raises(UnsupportedPlan, match="hook"):
        job.run(1)
    assert same(before, job.weights())
    assert all(p.grad is None and p.summed_grad is None for p in job.optimizer.params)
    assert charged_steps(dataset) == 0


def test_a_guard_is_copied_as_itself_and_not_pickled(
    new_training_dataset: NewDataset, new_job: NewJob
) -> None:
    guard = new_job(new_training_dataset()).guard
    assert copy.deepcopy({"guard": guard})["guard"] is guard
    with pytest.raises(TypeError, match="state_dict"):
        pickle.dumps(guard)


@pytest.mark.parametrize(("noise_multiplier", "epochs"), [(1.0, 7), (0.8, 3), (2.0, 21)])
def test_the_fixed_plan_reading_is_opacus_own_epsilon(
    new_training_dataset: NewDataset, new_job: NewJob, client: Client, noise_multiplier: float, epochs: int
) -> None:
    dataset = new_training_dataset(kind="approximate", epsilon=50, delta=1e-5)
    job = new_job(dataset, noise_multiplier=noise_multiplier, engine={"accountant": "rdp"})
    job.run(29 * epochs)
    job.guard.close()
    reading = client.odometer(dataset, delta=1e-5).reading("fixed_plan")
    local: RDPAccountant = job.engine.accountant
    assert local.history == [(noise_multiplier, 1 / 29, 29 * epochs)]
    at_the_drawn_rate = RDPAccountant()
    at_the_drawn_rate.history = [(noise_multiplier, drawn_rate(1 / 29), 29 * epochs)]
    epsilon = at_the_drawn_rate.get_epsilon(1e-5, alphas=ORDERS)
    assert reading["value"] == pytest.approx(epsilon, rel=1e-9, abs=0)
    assert epsilon > local.get_epsilon(1e-5, alphas=ORDERS)
    assert reading["order"] == int(reading["order"])  # Opacus's fractional orders are wrong in places

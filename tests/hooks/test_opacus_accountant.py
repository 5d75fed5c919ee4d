"""The accountant that Opacus makes by name: Opacus's numbers, the service's beside them, and no charge."""

import copy
import gc
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant, RDPAccountant, create_accountant, register_accountant
from opacus.accountants.registry import _ACCOUNTANTS
from opacus.accountants.utils import get_noise_multiplier
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from odometer_client import Client
from odometer_client.errors import UnsupportedPlan
from odometer_client.training.opacus import OdometerAccountant, OpacusGuard

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Full backward hook is firing"),
    pytest.mark.filterwarnings("ignore:Optimal order is the"),
]
NewDataset = Callable[..., str]
NewJob = Callable[..., Any]
ChargedSteps = Callable[[str], int]


class BesideRDP(OdometerAccountant):
    wraps = RDPAccountant


ASKED: dict[str, Any] = {
    "target_epsilon": 4.0,
    "target_delta": 1e-5,
    "sample_rate": 0.25,
    "steps": 8,
    "epsilon_tolerance": 0.5,
}
"""Of a calibration, coarse so that it is quick."""
WRAPPED = [("odometer", PRVAccountant), ("odometer-rdp", RDPAccountant)]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Both accountants under their names, and Opacus's registry as it was afterwards."""
    before = dict(_ACCOUNTANTS)
    register_accountant("odometer", OdometerAccountant, force=True)  # a recipe may have done so
    register_accountant("odometer-rdp", BesideRDP)
    yield
    _ACCOUNTANTS.clear()
    _ACCOUNTANTS.update(before)


def plain(accountant: str, **options: Any) -> Any:
    """A plain engine, and what its make_private gives at a rate of 1/4."""
    engine = PrivacyEngine(accountant=accountant)
    model = nn.Linear(8, 2)
    data = TensorDataset(torch.randn(200, 8), torch.randint(0, 2, (200,)))
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=50),
        **{"noise_multiplier": 1.0, "max_grad_norm": 1.0, **options},
    )
    return engine, made


def train(made: Any, steps: int) -> None:
    model, optimizer, loader = made
    for number, (x, y) in enumerate(loader):
        if number == steps:
            break
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


def of_history(own: type[Any], *history: tuple[float, float, int]) -> float:
    """Opacus's own ε of a history."""
    alone = own()
    alone.history = list(history)
    return float(alone.get_epsilon(1e-5))


@pytest.mark.parametrize(("name", "own"), WRAPPED)
def test_on_a_plain_engine_it_is_opacus_own_accountant(name: str, own: type[Any]) -> None:
    """Same ε, same history, same length and mechanism as the accountant that it wraps."""
    engine, made = plain(name)
    assert isinstance(engine.accountant, OdometerAccountant)
    assert len(engine.accountant) == 0
    train(made, 3)
    assert engine.get_epsilon(1e-5) == of_history(own, (1.0, 0.25, 3))
    assert engine.accountant.history == [(1.0, 0.25, 3)]
    assert len(engine.accountant) == 1
    assert engine.accountant.mechanism() == own.mechanism()
    engine.accountant.step(noise_multiplier=2.0, sample_rate=0.5)
    assert engine.get_epsilon(1e-5) == of_history(own, (1.0, 0.25, 3), (2.0, 0.5, 1))


def test_what_the_wrapped_accountant_can_be_asked_reaches_it() -> None:
    beside, alone = BesideRDP(), RDPAccountant()
    beside.history = alone.history = [(1.0, 0.25, 3)]
    assert beside.get_epsilon(1e-5, alphas=[4, 8]) == alone.get_epsilon(1e-5, alphas=[4, 8])
    assert beside.get_epsilon(1e-5, [3]) == alone.get_epsilon(1e-5, [3])
    assert beside.own.get_privacy_spent(delta=1e-5) == alone.get_privacy_spent(delta=1e-5)


@pytest.mark.parametrize(("name", "own"), WRAPPED)
def test_on_the_budgeted_engine_it_has_both_numbers(
    new_training_dataset: NewDataset,
    new_job: NewJob,
    charged_steps: ChargedSteps,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    name: str,
    own: type[Any],
) -> None:
    """The guard charges each step once; Opacus's ε is that of its steps, the service's that of the ledger."""
    dataset = new_training_dataset()
    job = new_job(dataset, engine={"accountant": name})
    accountant = job.engine.accountant
    assert accountant.service_epsilon == 0  # bound before the first step
    job.run(5)
    job.engine.close()
    assert charged_steps(dataset) == 5
    assert job.engine.get_epsilon(1e-5) == of_history(own, (1.0, 1 / 29, 5))
    assert accountant.service_epsilon == client.odometer(dataset).reading("if_stopped_now")["value"] > 0
    assert "not charged" not in caplog.text


def test_telling_it_steps_and_probing_charge_nothing(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps, client: Client
) -> None:
    """What Opacus does with accountants to find a noise multiplier writes nothing to the ledger."""
    dataset = new_training_dataset()
    job = new_job(dataset, engine={"accountant": "odometer"})
    at = client.odometer(dataset)["sequence"]
    for name, own in WRAPPED:
        noise = get_noise_multiplier(accountant=name, **ASKED)
        assert noise == get_noise_multiplier(accountant=own.mechanism(), **ASKED)
    create_accountant("odometer").step(noise_multiplier=1.0, sample_rate=0.5)
    job.engine.accountant.step(noise_multiplier=1.0, sample_rate=0.5)
    job.engine.accountant.history = [(1.0, 0.5, 100)]
    assert client.odometer(dataset)["sequence"] == at
    assert charged_steps(dataset) == 0
    with pytest.raises(UnsupportedPlan, match="charge_history"):  # the ledger has not these 100 steps
        job.run(1)


def test_calibration_is_as_without_it_and_charges_nothing(
    new_training_dataset: NewDataset, new_job: NewJob, charged_steps: ChargedSteps
) -> None:
    dataset = new_training_dataset()
    target = {"target_epsilon": 4.0, "target_delta": 1e-5, "epochs": 2}
    job = new_job(dataset, engine={"accountant": "odometer"}, **target)
    without = new_job(dataset, **target)
    assert job.optimizer.noise_multiplier == without.optimizer.noise_multiplier
    assert charged_steps(dataset) == 0
    assert job.engine.accountant.history == []


def test_calibration_works_where_it_took_opacus_own_name() -> None:
    """Registered as `prv` by force, it wraps Opacus's class and not itself."""
    noise = get_noise_multiplier(accountant="prv", **ASKED)
    register_accountant("prv", OdometerAccountant, force=True)
    assert isinstance(PrivacyEngine().accountant, OdometerAccountant)
    assert get_noise_multiplier(accountant="prv", **ASKED) == noise


@pytest.mark.parametrize(
    ("saved_by", "loaded_by"), [("odometer",) * 2, ("odometer", "prv"), ("prv", "odometer")]
)
def test_a_checkpoint_goes_on_with_it_and_without(
    new_training_dataset: NewDataset,
    new_job: NewJob,
    charged_steps: ChargedSteps,
    tmp_path: Any,
    saved_by: str,
    loaded_by: str,
) -> None:
    """The steps before it are in the history and in the ledger once, those after it are charged."""
    dataset = new_training_dataset()
    job = new_job(dataset, engine={"accountant": saved_by})
    job.run(3)
    job.engine.save_checkpoint(path=tmp_path / "run.pt", module=job.model, optimizer=job.optimizer)
    resumed = new_job(dataset, engine={"accountant": loaded_by})
    resumed.engine.load_checkpoint(
        path=tmp_path / "run.pt", module=resumed.model, optimizer=resumed.optimizer
    )
    resumed.run(2)
    resumed.engine.close()
    assert resumed.engine.accountant.history == [(1.0, 1 / 29, 5)]
    assert resumed.engine.get_epsilon(1e-5) == of_history(PRVAccountant, (1.0, 1 / 29, 5))
    assert charged_steps(dataset) == 5


def test_history_that_no_ledger_saw_is_refused_through_it_too(
    new_training_dataset: NewDataset, new_job: NewJob
) -> None:
    engine, made = plain("odometer")
    train(made, 3)
    state = engine.accountant.state_dict()
    assert dict(state) == {"history": [(1.0, 0.25, 3)], "mechanism": "prv"}
    job = new_job(new_training_dataset(), engine={"accountant": "odometer"})
    job.engine.accountant.load_state_dict(state)
    with pytest.raises(UnsupportedPlan, match="3 steps"):
        job.run(1)
    with pytest.raises(ValueError, match="cannot be loaded"):
        BesideRDP().load_state_dict(state)


def test_without_a_guard_it_has_no_number_of_the_service_and_says_that_nothing_is_charged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Said once. Never 0, and never None, which would be a bound's absence."""
    engine, made = plain("odometer")
    train(made, 3)
    assert caplog.text.count("are not charged: it has no guard") == 1
    with pytest.raises(ValueError, match="no guard is bound"):
        _ = engine.accountant.service_epsilon


def test_a_guard_on_the_plain_engine_is_bound_by_its_step_or_by_hand(
    new_training_dataset: NewDataset,
    client: Client,
    charged_steps: ChargedSteps,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dataset = new_training_dataset()
    engine, made = plain("odometer")
    with OpacusGuard(made[1], made[2], client, dataset, module=made[0]) as guard:
        by_hand = create_accountant("odometer")
        by_hand.bind(guard)
        assert by_hand.service_epsilon == 0
        train(made, 3)
    assert engine.accountant.service_epsilon == by_hand.service_epsilon == guard.epsilon > 0
    assert charged_steps(dataset) == 3
    assert "not charged" not in caplog.text


def test_a_copy_has_the_history_and_no_guard(new_training_dataset: NewDataset, new_job: NewJob) -> None:
    job = new_job(new_training_dataset(), engine={"accountant": "odometer"})
    job.run(1)
    accountant = job.engine.accountant
    for other in (copy.deepcopy(accountant), pickle.loads(pickle.dumps(accountant))):
        assert other.history == accountant.history
        with pytest.raises(ValueError, match="no guard is bound"):
            _ = other.service_epsilon


def test_it_does_not_keep_a_guard_alive(
    new_training_dataset: NewDataset, client: Client, charged_steps: ChargedSteps
) -> None:
    """A dropped guard gives back what it held, whoever still has the accountant."""
    dataset = new_training_dataset()
    engine, made = plain("odometer")
    guard = OpacusGuard(made[1], made[2], client, dataset, module=made[0])
    train(made, 2)
    assert charged_steps(dataset) == 3  # blocks of 1 and 2
    accountant = engine.accountant
    del guard, made, engine
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "odometer-give-back":
            thread.join(30)
    assert charged_steps(dataset) == 2
    with pytest.raises(ValueError, match="it is gone"):
        _ = accountant.service_epsilon

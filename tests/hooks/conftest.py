"""Fixtures of the hooks' tests: a real service, real data, a small job for each framework."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from odometer_client import Client
from odometer_client.mechanisms import PoissonSubsampled
from odometer_client.rates import dp_sgd_step
from odometer_client.testing import Service, serve, temporary_sqlite
from odometer_client.training.opacus import BudgetedPrivacyEngine, OpacusGuard

torch.set_num_threads(1)  # the networks here are so small that threads only wait for each other
_numbers = itertools.count()


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """A served SQLite ledger, one for the session."""
    with temporary_sqlite() as store, serve(store) as running:
        yield running


@pytest.fixture(scope="session")
def client(service: Service) -> Iterator[Client]:
    with Client(service.url, service.admin_key) as client:
        yield client


@pytest.fixture
def new_dataset(client: Client) -> Callable[..., str]:
    """Opens a dataset with one budget, (ε = 8, δ = 1e-5) unless told, and says its name."""

    def open_one(adjacency: str = "add_remove", **budget: Any) -> str:
        name = f"d{next(_numbers)}"
        budget = budget or {"kind": "approximate", "epsilon": 8, "delta": 1e-5}
        client.create_dataset(
            name, unit="person", adjacency=adjacency, delta=1e-5, budgets=[{"name": "life", **budget}]
        )
        return name

    return open_one


@pytest.fixture
def new_training_dataset(new_dataset: Callable[..., str]) -> Callable[..., str]:
    """The same for the guard's default adjacency, `zero_out`."""
    return partial(new_dataset, "zero_out")


@pytest.fixture(scope="session")
def digits() -> TensorDataset:
    """scikit-learn's digits: 1797 images of 8 by 8, ten classes."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))


@dataclass
class Job:
    """DP-SGD of a small network on digits, with Opacus and a guard."""

    engine: BudgetedPrivacyEngine
    model: Any
    optimizer: Any
    criterion: Any
    loader: Any
    steps_asked: int = 0
    batch_sizes: list[int] = field(default_factory=list)

    @property
    def guard(self) -> OpacusGuard:
        return self.engine.guard

    @property
    def mechanism(self) -> PoissonSubsampled:
        return dp_sgd_step(float(self.optimizer.noise_multiplier), self.loader.batch_sampler.sample_rate)

    def weights(self) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def backward(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.criterion(self.model(images), labels).backward()

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.backward(images, labels)
        self.steps_asked += 1
        self.batch_sizes.append(len(labels))
        self.optimizer.step()

    def run(self, steps: int | None = None, *, physical: int | None = None) -> None:
        """That many calls of `optimizer.step()` (None: one epoch), also beyond a refusal."""
        with ExitStack() as stack:
            loader = self.loader
            if physical is not None:
                loader = stack.enter_context(
                    BatchMemoryManager(
                        data_loader=loader, max_physical_batch_size=physical, optimizer=self.optimizer
                    )
                )
            endless = itertools.chain.from_iterable(itertools.repeat(loader))
            for images, labels in loader if steps is None else itertools.islice(endless, steps):
                self.step(images, labels)


@pytest.fixture
def new_job(client: Client, digits: TensorDataset) -> Callable[..., Job]:
    """Makes a `Job`: `engine` holds the guard's options, the rest goes to `make_private`."""

    def make(dataset: str, *, engine: dict[str, Any] | None = None, **options: Any) -> Job:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        rows = options.pop("rows", digits)
        loader = DataLoader(
            rows, batch_size=options.pop("batch_size", 64), num_workers=options.pop("num_workers", 0)
        )
        loader = options.pop("loader", loader)
        criterion = nn.CrossEntropyLoss()
        private = BudgetedPrivacyEngine(
            **{"client": client, "dataset": dataset, "block": 4, **(engine or {})}
        )
        arguments = {"max_grad_norm": 1.0, "criterion": criterion, **options}
        if "target_epsilon" in arguments:
            made = private.make_private_with_epsilon(
                module=model, optimizer=optimizer, data_loader=loader, **arguments
            )
        else:
            arguments.setdefault("noise_multiplier", 1.0)
            made = private.make_private(module=model, optimizer=optimizer, data_loader=loader, **arguments)
        return Job(private, made[0], made[1], made[2] if len(made) == 4 else criterion, made[-1])

    return make


@pytest.fixture
def charged_steps(client: Client) -> Callable[[str], int]:
    """How many steps a dataset's ledger has: charged and held, without those given back."""

    def count(dataset: str) -> int:
        steps = 0
        for item in client.ledger(dataset):
            entry = item["entry"]
            if entry["type"] in ("charged", "held"):
                steps += sum(int(charge["count"]) for charge in entry["command"]["charges"])
            elif entry["type"] == "settled":
                held = sum(int(charge["count"]) for charge in entry["held"]["command"]["charges"])
                steps -= held - sum(entry["used"])
        return steps

    return count

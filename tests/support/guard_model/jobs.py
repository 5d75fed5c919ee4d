"""A program's setup, and what it makes: the ledger, the engine, the models and what is theirs."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader

from guard_model.oracle import OUTPUTS, Oracle, Records, Slope
from guard_model.truth import ORDERS
from odometer_client import Client, OdometerError
from odometer_client.training.opacus import BudgetedPrivacyEngine

_names = count()
TIGHT = "-tight"
"""Ends the names of datasets whose budget a program may reach."""
PAST = -1
"""The head that was made before the last `make_private`."""


@dataclass(frozen=True)
class Setup:
    """What is fixed when a program starts."""

    n: int = 16
    batch_size: int = 4
    mode: Literal["hooks", "ghost", "functorch", "per layer"] = "hooks"
    wrap: bool = True
    """False: Opacus puts its hooks on the model itself and returns what holds them."""
    reduction: Literal["mean", "sum"] = "mean"
    noise: float = 1.0
    clip: float = 1.0
    heads: Literal["one", "two on one loader", "two loaders"] = "one"
    adjacency: Literal["zero_out", "add_remove"] = "zero_out"
    stated: bool = False
    """Whether the engine is given a rate and a divisor that do not depend on the number of records."""
    epsilon: float | None = None
    """A budget at δ = 1e-5 that the program may reach; None for one that it cannot."""
    block: int = 4
    on_exhausted: Literal["stop", "raise"] | None = None
    rand_on_empty: bool = False
    workers: int = 0
    own_noise: bool = False
    """Whether the noise has a generator of its own."""
    history: int = 0
    """Steps of a plain PrivacyEngine whose checkpoint the guarded one loads."""
    charge_history: bool = False
    prompt: bool = False
    """Compare at every release, not at the end alone."""


@dataclass
class Head:
    """One model with its optimizer, and the loader that came with it."""

    model: Any
    inner: Any
    optimizer: Any
    criterion: Any
    loader: Any
    familiar: bool = False
    """Whether a batch of the loader's own went in. Before that, nobody can tell it from another's."""


class Ledger(Client):
    """A client of a ledger of its own, in memory. Where all fits, the same plan is looked at once."""

    def __init__(self) -> None:
        super().__init__("memory://")
        self._plans: dict[str, Any] = {}

    def check(self, dataset: str, *arguments: Any, **named: Any) -> Any:
        """As `Client.check`, whose advice on noise takes more than half of a program's time."""
        if dataset.endswith(TIGHT):
            return super().check(dataset, *arguments, **named)
        question = repr((arguments, sorted(named.items())))
        if question not in self._plans:
            self._plans[question] = super().check(dataset, *arguments, **named)
        return self._plans[question]


class Interrupted(Exception):
    """What a program raises in the middle of a step."""


class Jobs:
    """Engines and heads on one dataset of a ledger in memory."""

    def __init__(self, setup: Setup, oracle: Oracle, client: Client) -> None:
        self.setup = setup
        self.oracle = oracle
        self.client = client
        self._records = Records(setup.n)
        self.dataset = f"model{next(_names)}{TIGHT if setup.epsilon is not None else ''}"
        self._open()
        self.engines: list[BudgetedPrivacyEngine] = []
        self.heads: list[Head] = []
        self._past: list[Head] = []
        self.batch: Any = None
        self._draw: int | None = None
        self._first: tuple[Any, int | None] | None = None
        self._saved: bytes | None = None
        self.short: list[str] = []
        """Releases that left before their charge, where every release is looked at."""
        self._noise_generator = torch.Generator().manual_seed(0) if setup.own_noise else None
        self.plant: Callable[[Any], None] | None = None
        """Breaks the guard on purpose, each time one was made."""
        if setup.rand_on_empty:
            oracle.distance = 2.0
        if setup.adjacency == "add_remove" and not setup.stated:
            oracle.nothing_covers = "rate and divisor depend on the number of records"

    def start(self) -> None:
        """Make the engine and what it makes private."""
        history = self._plain_history() if self.setup.history else None
        try:
            self._make()
            if history is not None:
                self._restore(history, **({"unseen_history": "charge"} if self.setup.charge_history else {}))
        except OdometerError:  # refused: what the plain engine did is not of this ledger
            self.oracle.forget()
            raise
        if self.setup.prompt:
            self.oracle.on_release = self._compare

    def charged(self) -> dict[int, float]:
        """What the ledger counts, in nats, for each order."""
        spent = {budget["name"]: budget["spent"] for budget in self.client.odometer(self.dataset)["budgets"]}
        return {order: spent[f"order-{order}"] for order in ORDERS}

    def end(self) -> None:
        for engine in self.engines:
            engine.close()

    def _compare(self) -> None:
        charged, truth = self.charged(), self.oracle.truth()
        if any(charged[order] < 0.999999 * truth[order] for order in ORDERS):
            self.short.append(f"release {len(self.oracle.releases)} left before its charge")

    def _open(self) -> None:
        budgets: list[dict[str, Any]] = [
            {"name": f"order-{order}", "kind": "renyi", "order": order, "epsilon": 1e4} for order in ORDERS
        ]
        if self.setup.epsilon is not None:
            budgets.append(
                {"name": "life", "kind": "approximate", "epsilon": self.setup.epsilon, "delta": 1e-5}
            )
        self.client.create_dataset(
            self.dataset, unit="person", adjacency=self.setup.adjacency, delta=1e-5, budgets=budgets
        )

    def _head(self, head: int) -> Head:
        return self._past[-1] if head == PAST else self.heads[head % len(self.heads)]

    def _make(self) -> None:
        setup = self.setup
        options: dict[str, Any] = {"block": setup.block, "adjacency": setup.adjacency}
        if setup.on_exhausted is not None:
            options["on_exhausted"] = setup.on_exhausted
        if setup.stated:
            options |= {"sample_rate": setup.batch_size / 20, "expected_batch_size": setup.batch_size}
        engine = BudgetedPrivacyEngine(client=self.client, dataset=self.dataset, **options)
        self.engines.append(engine)
        heads = [self._private(engine, self._loader())]
        if setup.heads != "one":
            given = heads[0].loader if setup.heads == "two on one loader" else self._loader()
            heads.append(self._private(engine, given))
        self._past += self.heads
        self.heads = heads
        if self.plant is not None:
            self.plant(self)
        self.batch = self._first = None
        self.source("own")

    def _loader(self) -> Any:
        return DataLoader(self._records, batch_size=self.setup.batch_size, num_workers=self.setup.workers)

    def _private(self, engine: PrivacyEngine, loader: Any) -> Head:
        setup = self.setup
        model = nn.Linear(self._records.columns, OUTPUTS, bias=False)
        inner = self.oracle.watch(torch.optim.SGD(model.parameters(), lr=0.01))
        criterion: Any = Slope(setup.reduction)
        made = engine.make_private(
            module=model,
            optimizer=inner,
            criterion=criterion,
            data_loader=loader,
            noise_multiplier=setup.noise,
            max_grad_norm=[setup.clip] if setup.mode == "per layer" else setup.clip,
            grad_sample_mode="hooks" if setup.mode == "per layer" else setup.mode,
            clipping="per_layer" if setup.mode == "per layer" else "flat",
            loss_reduction=setup.reduction,
            wrap_model=setup.wrap,
            rand_on_empty=setup.rand_on_empty,
            noise_generator=self._noise_generator,
        )
        self.oracle.belongs(inner, made[1])
        return Head(
            made[0] if setup.wrap else model,
            inner,
            made[1],
            made[2] if len(made) == 4 else criterion,
            made[-1],
        )

    def plain(self) -> PrivacyEngine:
        """Opacus alone, without a guard."""
        accountant = BudgetedPrivacyEngine(client=self.client, dataset=self.dataset).accountant
        plain = PrivacyEngine(accountant=type(accountant).mechanism())
        self.heads = [self._private(plain, self._loader())]
        self.source("own")
        return plain

    def _plain_history(self) -> bytes:
        """The checkpoint of an engine without a guard, after some steps."""
        plain = self.plain()
        self.loop(self.setup.history)
        file = io.BytesIO()
        plain.save_checkpoint(path=file, module=self.heads[0].model, optimizer=self.heads[0].optimizer)
        self.heads = []
        return file.getvalue()

    def _restore(self, saved: bytes, **options: Any) -> None:
        first = self.heads[0]
        self.engines[-1].load_checkpoint(
            path=io.BytesIO(saved), module=first.model, optimizer=first.optimizer, **options
        )

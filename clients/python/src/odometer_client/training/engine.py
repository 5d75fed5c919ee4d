"""Opacus's PrivacyEngine whose optimizers are guarded."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Literal

from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier

from odometer_client.base import UnsupportedPlan
from odometer_client.client import Client
from odometer_client.rates import dp_sgd_step
from odometer_client.training.accountant import OdometerAccountant
from odometer_client.training.distributed import rank, told_by_rank_zero
from odometer_client.training.guard import OpacusGuard
from odometer_client.training.optimizers import positive
from odometer_client.training.plan import Stated, agreed_adjacency

_CHECKPOINT: Final = "odometer_guards"
_COVERED: Final = "odometer_history"
UnseenHistory = Literal["refuse", "charge"]


class BudgetedPrivacyEngine(PrivacyEngine):
    """Opacus's PrivacyEngine whose optimizers are guarded. `guard` is the guard of the last one made.

    Args:
        client, dataset: where steps are charged.
        accountant: Opacus's local accountant, for its own reports, as in Opacus; the service decides. Under
            the name that you register it by, `OdometerAccountant` has the service's number beside Opacus's.
        secure_mode: as in Opacus: cryptographic randomness, needs torchcsprng.
        sample_rate, expected_batch_size: constants that do not depend on the number of rows, for an
            add_remove dataset. The sampler and the optimizer get them in place of what Opacus computes.
        guard_options: `on_exhausted`, `block`, `sweep`, `group`, `planned_steps` and others of `OpacusGuard`.
    """

    def __init__(
        self,
        *,
        client: Client | None,
        dataset: str,
        accountant: str = "prv",
        secure_mode: bool = False,
        sample_rate: float | None = None,
        expected_batch_size: float | None = None,
        **guard_options: Any,
    ) -> None:
        super().__init__(accountant=accountant, secure_mode=secure_mode)
        self.guards: list[OpacusGuard] = []
        self._client = client
        self._dataset = dataset
        self._guard_options = guard_options
        self._stated = Stated(sample_rate, expected_batch_size)
        self._covered: Counter[tuple[float, float]] = Counter()
        self._seen: set[bytes] = set()
        self._epochs: int | None = None

    @property
    def guard(self) -> OpacusGuard:
        """The guard of the optimizer that was made last."""
        if not self.guards:
            raise AttributeError("no guard yet: call make_private first")
        return self.guards[-1]

    def make_private(
        self,
        *,
        poisson_sampling: bool = True,
        rand_on_empty: bool = False,
        epochs: int | None = None,
        **arguments: Any,
    ) -> Any:
        """As Opacus's, with a guard. `make_private_with_epsilon` comes through here too.

        `epochs`: how many are meant to run, if known: `guard.plan` says whether their steps fit.

        Raises `UnsupportedPlan` for what cannot be charged as what it is, such as `poisson_sampling=False`;
        and for a wrong key, a wrong dataset, or a service that is not there, what a charge would raise.
        Nothing is charged.
        """
        self._check_before(poisson_sampling=poisson_sampling, rand_on_empty=rand_on_empty, **arguments)
        made = super().make_private(poisson_sampling=True, rand_on_empty=False, **arguments)
        module, optimizer, loader = made[0], made[1], made[-1]
        epochs = self._epochs if epochs is None else epochs
        options = {"planned_steps": None if epochs is None else epochs * len(loader), **self._guard_options}
        if self._stated.sample_rate is not None:
            optimizer.attach_step_hook(
                self.accountant.get_optimizer_hook_fn(sample_rate=self._stated.sample_rate)
            )
        optimizer.attach_step_hook(self._covering(optimizer.step_hook))
        guard = OpacusGuard(
            optimizer,
            loader,
            self._client,
            self._dataset,
            module=module,
            sample_rate=self._stated.sample_rate,
            expected_batch_size=self._stated.expected_batch_size,
            seen=self._seen,
            **options,
        )
        guard.unseen_history = self._unseen_said
        self.guards.append(guard)
        if isinstance(self.accountant, OdometerAccountant):
            self.accountant.bind(guard)
        return made

    def make_private_with_epsilon(self, *, epochs: int, **arguments: Any) -> Any:
        """As Opacus's, with a guard. `guard.plan` says whether the steps of all epochs fit."""
        self._epochs = epochs
        try:
            if self._stated.sample_rate is None:
                return super().make_private_with_epsilon(epochs=epochs, **arguments)
            steps = epochs * int(1 / self._stated.sample_rate)
            noise = get_noise_multiplier(
                target_epsilon=arguments.pop("target_epsilon"),
                target_delta=arguments.pop("target_delta"),
                sample_rate=self._stated.sample_rate,
                steps=steps,
                accountant=self.accountant.mechanism(),
            )
            return self.make_private(noise_multiplier=noise, **arguments)
        finally:
            self._epochs = None

    def _check_before(self, *, poisson_sampling: bool, rand_on_empty: bool, **arguments: Any) -> None:
        """What can be known before Opacus changes the model. Raises UnsupportedPlan, and as a charge."""
        if not poisson_sampling:
            raise UnsupportedPlan(
                "poisson_sampling=False keeps fixed or shuffled batches, which have not the loss that Opacus "
                "and DP-SGD's analysis give them. Leave it True; BatchMemoryManager bounds the memory."
            )
        if rand_on_empty:
            raise UnsupportedPlan(
                "rand_on_empty=True puts a random row in place of an empty batch: a step with one record "
                "then differs from one without by up to twice the clip norm, and the noise covers it once. "
                "Leave it False"
            )
        if "noise_multiplier" in arguments:
            positive("noise_multiplier", arguments["noise_multiplier"])
        norms = arguments.get("max_grad_norm", 1.0)
        for one in norms if isinstance(norms, list | tuple) else [norms]:
            positive("max_grad_norm", one)
        group = self._guard_options.get("process_group")
        adjacency = self._guard_options.get("adjacency")
        divided = arguments.get("loss_reduction", "mean") == "mean"
        client = self._client if rank(group) == 0 else None
        told_by_rank_zero(
            lambda: agreed_adjacency(client, self._dataset, adjacency, self._stated, divided=divided), group
        )

    def _prepare_data_loader(self, data_loader: Any, **arguments: Any) -> Any:
        """Opacus's loader, at the stated rate where there is one."""
        loader = super()._prepare_data_loader(data_loader, **arguments)
        rate = self._stated.sample_rate
        if rate is not None:
            steps = int(1 / positive("sample_rate", rate))
            sampler = loader.batch_sampler
            loader.sample_rate = sampler.sample_rate = rate
            setattr(sampler, "steps" if hasattr(sampler, "steps") else "num_batches", steps)
        return loader

    def _prepare_optimizer(
        self, *, expected_batch_size: Any, distributed: bool = False, **arguments: Any
    ) -> Any:
        """Opacus's optimizer, with the stated divisor where there is one."""
        stated = self._stated.expected_batch_size
        if stated is not None:
            expected_batch_size = positive("expected_batch_size", stated)
        optimizer = super()._prepare_optimizer(
            expected_batch_size=expected_batch_size, distributed=distributed, **arguments
        )
        if stated is not None and distributed:
            optimizer.expected_batch_size = expected_batch_size / optimizer.world_size
        return optimizer

    # -- what Opacus's accountant has, and the ledger has not

    def _covering(self, hook: Callable[[Any], None] | None) -> Callable[[Any], None]:
        """Opacus's own hook, which runs once a step is charged: what it records is covered."""

        def recorded(optimizer: Any) -> None:
            if hook is None:
                return
            before = _steps_of(self.accountant)
            hook(optimizer)
            self._covered += _steps_of(self.accountant) - before

        return recorded

    def _unseen(self) -> Counter[tuple[float, float]]:
        return _steps_of(self.accountant) - self._covered

    def _unseen_said(self) -> str | None:
        unseen = self._unseen()
        if not unseen:
            return None
        return (
            f"{unseen.total()} steps of the local accountant's history were not charged through this "
            "engine, so the ledger may not have them. Call engine.charge_history() to charge them, or load "
            "the checkpoint "
            'with engine.load_checkpoint(..., unseen_history="charge")'
        )

    def charge_history(self) -> int:
        """Charge what the local accountant has and the ledger has not; how many steps that was."""
        unseen = self._unseen()
        for (noise, rate), steps in unseen.items():
            self.guard.pay(dp_sgd_step(positive("noise_multiplier", noise), rate), steps)
            self._covered[(noise, rate)] += steps
        return unseen.total()

    def close(self) -> None:
        """Close every guard: give back what was held and not used."""
        for guard in self.guards:
            guard.close()

    def save_checkpoint(self, *, checkpoint_dict: dict[str, Any] | None = None, **arguments: Any) -> None:
        """As Opacus's, with the guards' state. What they hold and did not use is given back."""
        own = {_CHECKPOINT: [guard.state_dict() for guard in self.guards], _COVERED: dict(self._covered)}
        super().save_checkpoint(checkpoint_dict={**(checkpoint_dict or {}), **own}, **arguments)

    def load_checkpoint(self, *, unseen_history: UnseenHistory = "refuse", **arguments: Any) -> Any:
        """As Opacus's; the guards go on with the run's name. Call it after `make_private`.

        `unseen_history`: what to do about steps in the checkpoint's history that no guard charged, of a plain
        PrivacyEngine for one: "refuse" (UnsupportedPlan, until `charge_history`) or "charge".
        """
        if unseen_history not in ("refuse", "charge"):
            raise ValueError(f"unseen_history is {unseen_history!r}: give 'refuse' or 'charge'")
        checkpoint = super().load_checkpoint(**arguments)
        self._covered = Counter(checkpoint.get(_COVERED, _taken_by(checkpoint)))
        for guard, state in zip(self.guards, checkpoint.get(_CHECKPOINT, []), strict=False):
            guard.load_state_dict(state)
        if unseen_history == "charge":
            self.charge_history()
        elif unseen := self._unseen_said():
            raise UnsupportedPlan(unseen)
        return checkpoint


def _steps_of(accountant: Any) -> Counter[tuple[float, float]]:
    """The steps in an accountant's history, by noise multiplier and rate."""
    steps: Counter[tuple[float, float]] = Counter()
    for noise, rate, count in accountant.history:
        steps[(float(noise), float(rate))] += int(count)
    return steps


def _taken_by(checkpoint: dict[str, Any]) -> Counter[tuple[float, float]]:
    """What the guards of a checkpoint of an earlier version charged: the first steps of its history."""
    left = sum(int(state["taken"]) for state in checkpoint.get(_CHECKPOINT, []))
    covered: Counter[tuple[float, float]] = Counter()
    for noise, rate, count in checkpoint["privacy_accountant_state_dict"]["history"]:
        part = min(left, int(count))
        covered[(float(noise), float(rate))] += part
        left -= part
    return covered

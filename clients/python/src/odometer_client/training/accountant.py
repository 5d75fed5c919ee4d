"""An accountant that Opacus makes by name: the user's own, and the service's number beside it."""

import logging
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Final

from opacus.accountants import IAccountant, PRVAccountant

from odometer_client.training.guard import OpacusGuard

log: Final = logging.getLogger("odometer_client")


class OdometerAccountant(IAccountant):
    """Opacus's own accountant in all it is asked, and what the service has counted as `service_epsilon`.

        register_accountant("odometer", OdometerAccountant)
        engine = BudgetedPrivacyEngine(client=client, dataset="patients", accountant="odometer")

    **It charges nothing**, whatever it is told: Opacus also makes accountants and writes their history to try
    noise out. The guard of the optimizer charges; steps of an optimizer that has none are not charged, and
    the first is logged. Its mechanism is the wrapped one's, so calibration and checkpoints are the same
    as without it. A subclass names another in `wraps`.
    """

    wraps: ClassVar[type[Any]] = PRVAccountant
    """The accountant that it stands for; a class, for its name may come to be registered as this one."""

    def __init__(self) -> None:
        self.own = self.wraps()
        """Opacus's accountant, with all that it alone has."""
        self._guard: Callable[[], OpacusGuard | None] = _none
        self._warned = False

    def bind(self, guard: OpacusGuard) -> None:
        """Read the service's number through this guard. A `BudgetedPrivacyEngine` does it, and each step.

        It does not keep the guard alive: a guard that is dropped gives back what it held.
        """
        self._guard = weakref.ref(guard)

    @property
    def service_epsilon(self) -> float | None:
        """`guard.epsilon`: the dataset's ε so far at its own δ, as the service counts; None is no bound.

        Of everything that was charged to the dataset, and at the dataset's δ, so it is no second opinion on
        `get_epsilon`. Raises ValueError where no guard is bound; asks the service, and raises as it does.
        """
        guard = self._guard()
        if guard is None:
            raise ValueError("no guard is bound, or it is gone: call bind(guard) with the optimizer's guard")
        return guard.epsilon

    @property
    def history(self) -> list[tuple[float, float, int]]:
        """The wrapped accountant's steps: noise multiplier, sampling rate, count."""
        return self.own.history  # type: ignore[no-any-return]

    @history.setter
    def history(self, history: list[tuple[float, float, int]]) -> None:
        self.own.history = history

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Record a step. It is not charged here."""
        self.own.step(noise_multiplier=noise_multiplier, sample_rate=sample_rate)

    def get_epsilon(self, delta: float, *arguments: Any, **options: Any) -> Any:
        """The wrapped accountant's ε of its history, exactly."""
        return self.own.get_epsilon(delta, *arguments, **options)

    def __len__(self) -> int:
        return len(self.own)

    @classmethod
    def mechanism(cls) -> Any:
        """The wrapped accountant's, by which Opacus calibrates noise and knows its checkpoints."""
        return cls.wraps.mechanism()

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """The wrapped accountant's hook. It sees which guard has charged the step, or that none did."""
        record = self.own.get_optimizer_hook_fn(sample_rate)

        def recorded(optimizer: Any) -> None:
            guard = getattr(optimizer, "odometer_guard", None)
            if guard is not None:
                self.bind(guard)
            elif not self._warned:
                self._warned = True
                log.warning(
                    "steps of this optimizer are not charged: it has no guard. Use BudgetedPrivacyEngine, or "
                    "make an OpacusGuard of it"
                )
            record(optimizer)

        return recorded

    def state_dict(self, destination: Any = None) -> Any:
        """The wrapped accountant's: a checkpoint that an engine without this one loads too."""
        return self.own.state_dict(destination)

    def load_state_dict(self, state_dict: Any) -> None:
        """As the wrapped accountant; ValueError for a checkpoint of another mechanism."""
        self.own.load_state_dict(state_dict)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, and what is pickled, is not bound: a guard is of one optimizer in one process."""
        return {**self.__dict__, "_guard": _none}


def _none() -> None:
    """No guard."""

"""Opacus: every step of DP-SGD is charged before its gradient leaves the optimizer.

    engine = BudgetedPrivacyEngine(client=client, dataset="patients")
    model, optimizer, loader = engine.make_private(module=..., optimizer=..., data_loader=..., ...)
    with engine.guard as guard:                    # at the end gives back what was held and not used
        for x, y in guard.batches(loader):         # ends when the budget refuses
            ...
            optimizer.step()

The guard sits where Opacus calls its own accountant: after the noise is drawn, before the inner optimizer
moves a weight and before ranks exchange anything. Virtual steps (BatchMemoryManager) are no release and
not charged; an empty batch is one, and is. A loop that skips `optimizer.step()` for empty batches is not
differentially private, and no hook can see it. Neither can it see losses or metrics that you print.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NoReturn, Self, TypeVar

from opacus import PrivacyEngine
from opacus.optimizers import AdaClipDPOptimizer

from odometer_client.base import UnsupportedPlan
from odometer_client.blocks import DEFAULT_BLOCK, Blocks
from odometer_client.client import Client
from odometer_client.documents import Receipt
from odometer_client.errors import BudgetExceeded
from odometer_client.mechanism import Mechanism
from odometer_client.mechanisms import Gaussian, PoissonSubsampled
from odometer_client.payments import HOLD_EXPIRES_IN_S, DatasetPayments
from odometer_client.training.distributed import decided_by_rank_zero, rank, world_size
from odometer_client.training.sampling import check_distributed, poisson_rate

OnExhausted = Literal["stop", "raise"]
T = TypeVar("T")
_CHECKPOINT = "odometer_guards"


class OpacusGuard:
    """Guards one DPOptimizer: no step without a charge.

    Args:
        optimizer: what `make_private` returned.
        data_loader: the loader it returned; its sampler says how batches are drawn.
        client: charges; only rank 0's is used, others may pass None.
        dataset: the dataset's name.
        block: steps held at once. `close`, a refusal and `state_dict` give back those not used; a process
            that dies gives back none.
        hold_expires_in_s: seconds that a block can be settled for, 1 to 31,622,400. After it all of the
            block stays spent, and its steps can still be taken.
        on_exhausted: "stop" turns all further steps into no-ops; "raise" lets `BudgetExceeded` out of
            `optimizer.step()`. Either way weights keep their last paid value and gradients are dropped.
        run_id: names the run in its idempotency keys; made up when left out.
        adjacency: "add_remove", or "zero_out" for a dataset of that adjacency.
        allow_adaptive_clipping: charge adaptive clipping as Opacus accounts for it. Off, because Opacus
            adapts its clip norm by the unnoised batch size, and says in its source that it leaves this out.
        process_group: the ranks that train together; None is all of them.

    Any other error of a charge (OutcomeUnknown, ...) leaves `optimizer.step()` in both modes, with
    weights unchanged. Calling `step` again then asks with the same key.
    """

    def __init__(  # noqa: PLR0913
        self,
        optimizer: Any,
        data_loader: Any,
        client: Client | None,
        dataset: str,
        *,
        block: int = DEFAULT_BLOCK,
        on_exhausted: OnExhausted = "stop",
        run_id: str | None = None,
        adjacency: Literal["add_remove", "zero_out"] = "add_remove",
        allow_adaptive_clipping: bool = False,
        hold_expires_in_s: int = HOLD_EXPIRES_IN_S,
        process_group: Any = None,
    ) -> None:
        if on_exhausted not in ("stop", "raise"):
            raise ValueError(f"on_exhausted is {on_exhausted!r}: give 'stop' or 'raise'")
        if getattr(optimizer, "odometer_guard", None) is not None:
            raise ValueError("this optimizer has a guard already: a second would charge each step twice")
        self.dataset = dataset
        self.refusal: BudgetExceeded | None = None
        """The refusal that stopped the run."""
        self._on_exhausted = on_exhausted
        self._allow_adaptive_clipping = allow_adaptive_clipping
        self._sampling_rate = poisson_rate(data_loader)
        self._payments = DatasetPayments(client, dataset, adjacency, hold_expires_in_s)
        self._blocks = Blocks(self._payments, run_id=run_id, block=block)
        self._join_ranks(optimizer, data_loader, process_group)
        self._install(optimizer)

    @property
    def stopped(self) -> bool:
        """Whether the budget refused: no step will run any more."""
        return self.refusal is not None

    @property
    def steps(self) -> int:
        """Steps that were paid for and taken, over all processes of the run."""
        return self._blocks.taken

    @property
    def charged(self) -> int:
        """Steps that were charged or held and not given back, in all processes of the run.

        At least `steps`; the same once the guard is closed.
        """
        return self._blocks.charged

    @property
    def receipt(self) -> Receipt | None:
        """The last receipt (on rank 0)."""
        return self._blocks.receipt

    @property
    def run_id(self) -> str:
        """Names the run in its idempotency keys."""
        return self._blocks.run_id

    def batches(self, data_loader: Iterable[T]) -> Iterator[T]:
        """The loader's batches, until the budget refuses."""
        for batch in data_loader:
            if self.stopped:
                return
            yield batch

    def close(self) -> None:
        """Give back what was held and not used. Close on every rank; a later step takes a new block.

        Where the service does not answer, or the hold has expired, it stays spent: that is logged.
        """
        self._blocks.settle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint. What was held and not used is given back first; the next step takes a new block.

        Where several ranks train, nothing is given back here: perhaps one of them alone saves.
        """
        return {"dataset": self.dataset, **self._blocks.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume: steps run again from here are new releases and charged as such."""
        if state["dataset"] != self.dataset:
            raise ValueError(
                f"the checkpoint charged {state['dataset']!r}, this guard charges {self.dataset!r}"
            )
        self._blocks.load_state_dict(state)

    def _join_ranks(self, optimizer: Any, data_loader: Any, group: Any) -> None:
        """Where several ranks train together, let rank 0 decide for all."""
        if world_size(group) == 1:
            return
        if getattr(optimizer, "world_size", 1) != world_size(group):
            raise UnsupportedPlan(
                f"{world_size(group)} ranks run, but {type(optimizer).__name__} is not distributed: "
                "each would train its own model. Wrap the model in opacus.distributed."
                "DifferentiallyPrivateDistributedDataParallel before make_private."
            )
        check_distributed(data_loader, group)
        if rank(group) != 0:
            self._payments.client = None
        self._blocks.together(lambda buy: decided_by_rank_zero(buy, group))

    def _install(self, optimizer: Any) -> None:
        """Charge in front of the local accountant's hook, and stand around the step for clean stops."""
        accountant_hook, pre_step = optimizer.step_hook, optimizer.pre_step

        def charge_then_account(stepping: Any) -> None:
            self._blocks.take(self._mechanism(stepping))
            if accountant_hook is not None:
                accountant_hook(stepping)

        def guarded_pre_step(closure: Any = None) -> Any:
            if self.refusal is not None:
                return self._end(optimizer, self.refusal)
            try:
                if optimizer.step_hook is not charge_then_account:
                    raise UnsupportedPlan(
                        "Another step hook stands in the guard's place: this step would not be charged. "
                        "Attach your hooks before the guard is made: it calls them after it has charged."
                    )
                return pre_step(closure)
            except BudgetExceeded as refusal:
                self.refusal = refusal
                return self._end(optimizer, refusal)
            except BaseException:
                _drop_gradients(optimizer)
                raise

        optimizer.attach_step_hook(charge_then_account)
        optimizer.pre_step = guarded_pre_step
        optimizer.odometer_guard = self

    def _end(self, optimizer: Any, refusal: BudgetExceeded) -> bool:
        """No step: False tells Opacus not to call the inner optimizer."""
        _drop_gradients(optimizer)
        if self._on_exhausted == "raise":
            raise refusal
        return False

    def _mechanism(self, optimizer: Any) -> Mechanism:
        """What this step is about to release, read from the optimizer as it is now."""
        adapts = isinstance(optimizer, AdaClipDPOptimizer) or hasattr(optimizer, "_adjusted_noise_multiplier")
        if adapts and not self._allow_adaptive_clipping:
            raise UnsupportedPlan(
                "Opacus adapts the clip norm by the exact size of the batch, which Poisson sampling keeps "
                "private, so the step's loss is above what its noise multiplier says. Use a fixed clip norm, "
                "or pass allow_adaptive_clipping=True to charge it as Opacus does."
            )
        if optimizer.accumulated_iterations != 1:
            raise UnsupportedPlan(
                f"{optimizer.accumulated_iterations} Poisson batches were accumulated for one step: a record "
                "may be in several of them, and the noise covers one. Call optimizer.step() for each batch, "
                "and use BatchMemoryManager for large ones."
            )
        noise = Gaussian(noise_multiplier=float(optimizer.noise_multiplier))
        return PoissonSubsampled(base=noise, sampling_rate=self._sampling_rate)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copied optimizer's steps are charged to the same run

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A guard is not pickled: it stands for charges of one process. Save guard.state_dict(), make a "
            "guard in the new process, and load it there."
        )


class BudgetedPrivacyEngine(PrivacyEngine):
    """Opacus's PrivacyEngine whose optimizers are guarded. `guard` is the guard of the last one made.

    Args:
        client, dataset: where steps are charged.
        accountant: Opacus's local accountant, for its own reports; the service decides.
        secure_mode: as in Opacus: cryptographic randomness, needs torchcsprng.
        guard_options: `block`, `hold_expires_in_s`, `on_exhausted`, `run_id` and others of `OpacusGuard`.
    """

    def __init__(
        self,
        *,
        client: Client | None,
        dataset: str,
        accountant: str = "rdp",
        secure_mode: bool = False,
        **guard_options: Any,
    ) -> None:
        super().__init__(accountant=accountant, secure_mode=secure_mode)
        self.guards: list[OpacusGuard] = []
        self._client = client
        self._dataset = dataset
        self._guard_options = guard_options

    @property
    def guard(self) -> OpacusGuard:
        """The guard of the optimizer that was made last."""
        if not self.guards:
            raise AttributeError("no guard yet: call make_private first")
        return self.guards[-1]

    def make_private(self, *, poisson_sampling: bool = True, **arguments: Any) -> Any:
        """As Opacus's, with a guard. `make_private_with_epsilon` comes through here too.

        Raises `UnsupportedPlan` for `poisson_sampling=False`: Opacus would account for it as Poisson.
        """
        if not poisson_sampling:
            raise UnsupportedPlan(
                "poisson_sampling=False keeps fixed or shuffled batches, which have not the loss that Opacus "
                "and DP-SGD's analysis give them. Leave it True; BatchMemoryManager bounds the memory."
            )
        made = super().make_private(poisson_sampling=True, **arguments)
        guard = OpacusGuard(made[1], made[-1], self._client, self._dataset, **self._guard_options)
        self.guards.append(guard)
        return made

    def close(self) -> None:
        """Close every guard: give back what was held and not used."""
        for guard in self.guards:
            guard.close()

    def save_checkpoint(self, *, checkpoint_dict: dict[str, Any] | None = None, **arguments: Any) -> None:
        """As Opacus's, with the guards' state. What they hold and did not use is given back."""
        states = [guard.state_dict() for guard in self.guards]
        super().save_checkpoint(checkpoint_dict={**(checkpoint_dict or {}), _CHECKPOINT: states}, **arguments)

    def load_checkpoint(self, **arguments: Any) -> Any:
        """As Opacus's; the guards go on with the run's name. Call it after `make_private`."""
        checkpoint = super().load_checkpoint(**arguments)
        for guard, state in zip(self.guards, checkpoint.get(_CHECKPOINT, []), strict=False):
            guard.load_state_dict(state)
        return checkpoint


def _drop_gradients(optimizer: Any) -> None:
    """Forget what the step held: noised gradients, and the unnoised sums of virtual steps.

    Opacus keeps sums when the last step was virtual, and with loader workers its queue keeps old signals.
    """
    optimizer._is_last_step_skipped = False
    optimizer._step_skip_queue.clear()
    optimizer.zero_grad(set_to_none=True)

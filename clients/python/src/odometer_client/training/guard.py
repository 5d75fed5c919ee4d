"""The guard of one DP optimizer: a step is the exposure of one draw, charged before it leaves, or refused."""

import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NoReturn, Self

from opacus.optimizers import AdaClipDPOptimizer

from odometer_client import ends
from odometer_client.base import UnsupportedPlan
from odometer_client.blocks import DEFAULT_BLOCK, Blocks
from odometer_client.client import Client
from odometer_client.documents import Receipt
from odometer_client.errors import BudgetExceeded
from odometer_client.mechanism import Mechanism
from odometer_client.payments import HOLD_EXPIRES_IN_S, DatasetPayments, SweepPayments
from odometer_client.rates import dp_sgd_step
from odometer_client.sweeps import Sweep
from odometer_client.training import optimizers
from odometer_client.training.distributed import decided_by_rank_zero, rank, told_by_rank_zero, world_size
from odometer_client.training.draws import Draws, Piece, generator_state
from odometer_client.training.loaders import count_draws
from odometer_client.training.plan import Adjacency, Plan, Stated, agreed_adjacency, planned
from odometer_client.training.sampling import (
    check_distributed,
    check_no_dummies,
    poisson_sampler,
    rounding_beyond,
)
from odometer_client.training.witness import Witness

log: Final = logging.getLogger("odometer_client")
OnExhausted = Literal["stop", "raise"]


class OpacusGuard:
    """Guards one DPOptimizer: no step without a charge.

    Args:
        optimizer: what `make_private` returned.
        data_loader: the loader it returned; its sampler says how batches are drawn.
        client: charges; only rank 0's is used, others may pass None.
        dataset: the dataset's name.
        module: the model it returned; needed in ghost clipping, where the model clips.
        block: most steps held at once. Blocks start at 1 and double. `close`, a refusal, `state_dict` and an
            ordinary end of the process give back those not used; a process that is killed gives back none.
        hold_expires_in_s: seconds that a block can be settled for, 1 to 31,622,400. After it all of the
            block stays spent, and its steps can still be taken.
        on_exhausted: "stop" turns all further steps into no-ops, with a warning; "raise" lets
            `BudgetExceeded` out of `optimizer.step()`. Left out, it stops with a warning, and raises where
            not one step could be paid. Weights keep their last paid value and gradients are dropped.
        run_id: names the run in its idempotency keys; made up when left out.
        adjacency: "zero_out" unless told. "add_remove" needs the next two.
        sample_rate, expected_batch_size: constants that do not depend on the number of rows; they must be
            what the sampler and the optimizer have. With both, `adjacency` may be left out: the dataset's.
        allow_adaptive_clipping: charge adaptive clipping as Opacus accounts for it. Off, because Opacus
            adapts its clip norm by the unnoised batch size, and says in its source that it leaves this out.
        check_inputs: refuse model inputs that are not the loader's batch, once those were recognised.
        planned_steps: how many steps the run means to take: `plan` says whether they fit.
        sweep: a `Sweep` whose hold pays for the steps of this run; nothing else is charged then.
        group: the name of the runs that this one belongs to: the group's odometer has its steps too.
        end_on_sigterm: let SIGTERM end the process in order, so that unused steps come back (only in the
            main thread, and where nobody else handles it).
        process_group: the ranks that train together; None is all of them.
        seen: states of random generators that were drawn from; an engine's guards share it.

    Any other error of a charge (OutcomeUnknown, ...) leaves `optimizer.step()` in both modes, with
    weights unchanged. A step that runs again then asks with the same key.
    """

    def __init__(  # noqa: PLR0913
        self,
        optimizer: Any,
        data_loader: Any,
        client: Client | None,
        dataset: str,
        *,
        module: Any = None,
        block: int = DEFAULT_BLOCK,
        on_exhausted: OnExhausted | None = None,
        run_id: str | None = None,
        adjacency: Adjacency | None = None,
        sample_rate: float | None = None,
        expected_batch_size: float | None = None,
        allow_adaptive_clipping: bool = False,
        check_inputs: bool = True,
        planned_steps: int | None = None,
        sweep: Sweep | None = None,
        group: str | None = None,
        hold_expires_in_s: int = HOLD_EXPIRES_IN_S,
        end_on_sigterm: bool = True,
        process_group: Any = None,
        seen: set[bytes] | None = None,
    ) -> None:
        if on_exhausted not in ("stop", "raise", None):
            raise ValueError(f"on_exhausted is {on_exhausted!r}: give 'stop' or 'raise', or leave it out")
        if getattr(optimizer, "odometer_guard", None) is not None:
            raise ValueError("this optimizer has a guard already: a second would charge each step twice")
        if sweep is not None and group is not None:
            raise ValueError("a sweep is a group of its own: leave group out")
        self.dataset = dataset
        self.refusal: BudgetExceeded | None = None
        """The refusal that stopped the run."""
        self.unseen_history: Callable[[], str | None] = lambda: None
        """Says what the local accountant has that the ledger has not."""
        self._on_exhausted = on_exhausted
        self._allow_adaptive_clipping = allow_adaptive_clipping
        self._module = module
        self._optimizer = weakref.ref(optimizer)
        self._loader = data_loader
        self._sampler = poisson_sampler(data_loader)
        self._draws = Draws(set() if seen is None else seen)
        self._stated = Stated(sample_rate, expected_batch_size)
        self._divisor = (optimizer.loss_reduction, optimizer.expected_batch_size)
        self._stepping: Piece | None = None
        self._noise_state: bytes | None = None
        self._clips: list[float] = []
        self._turned_away = 0
        self._check_now(optimizer)
        if rank(process_group) != 0:
            client = None
        divided = optimizer.expected_batch_size is not None
        self.adjacency: Adjacency = told_by_rank_zero(
            lambda: agreed_adjacency(client, dataset, adjacency, self._stated, divided=divided), process_group
        )
        self._payments = (
            DatasetPayments(client, dataset, self.adjacency, hold_expires_in_s, group)
            if sweep is None
            else SweepPayments(sweep, dataset)
        )
        self._blocks = Blocks(self._payments, run_id=run_id, block=block if sweep is None else 1)
        self._join_ranks(optimizer, data_loader, process_group)
        self._check_constants(optimizer, self._sampler.sample_rate)
        self.plan: Plan = told_by_rank_zero(
            lambda: planned(
                client, dataset, self._first_mechanism(optimizer), planned_steps, self.adjacency, sweep
            ),
            process_group,
        )
        self._client = client
        self._witness = Witness(module, self._draws, demanding=check_inputs)
        count_draws(data_loader, self._draws, weakref.ref(self))
        self._install(optimizer)
        ends.give_back_at_the_end(self, self._blocks, client, sigterm=end_on_sigterm)

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

    @property
    def epsilon(self) -> float | None:
        """The dataset's ε so far at its own δ, whatever made you stop now; None where there is no bound.

        Of everything that was charged to the dataset, not of this run alone. Asks the service (rank 0).
        """
        if self._client is None:
            raise ValueError("rank 0 charges: ask its guard")
        value = self._client.odometer(self.dataset).reading("if_stopped_now")["value"]
        return None if value is None else float(value)

    def batches(self, data_loader: Any) -> "Batches":
        """The loader's batches, until the budget refuses. It has a length.

        `data_loader`: the one that make_private returned, or BatchMemoryManager's version of it; any other
        raises UnsupportedPlan.
        """
        if not self.owns(data_loader):
            raise UnsupportedPlan(
                f"guard.batches was given a {type(data_loader).__name__} that is not the guarded loader: "
                "give it the loader of make_private, or BatchMemoryManager's version of that"
            )
        return Batches(self, data_loader)

    def owns(self, data_loader: Any) -> bool:
        """Whether its draws are counted by this guard."""
        return getattr(data_loader, "odometer_draws", None) is self._draws

    def guards(self, optimizer: Any) -> bool:
        """Whether this is the guarded optimizer, not a copy."""
        return self._optimizer() is optimizer

    def close(self) -> None:
        """Give back what was held and not used. Close on every rank; a later step takes a new block.

        Where the service does not answer, or the hold has expired, it stays spent: that is logged.
        """
        self._blocks.settle()
        if self._turned_away:
            log.warning(
                "%d %s after the refused one did nothing",
                self._turned_away,
                "step" if self._turned_away == 1 else "steps",
            )
            self._turned_away = 0

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

    def pay(self, mechanism: Mechanism, count: int) -> None:
        """Charge a release that is no step of the guarded optimizer."""
        self._blocks.charge(mechanism, count)

    # -- around a step

    def stepping(self, optimizer: Any, pre_step: Callable[[], Any]) -> Any:
        """In place of the optimizer's `pre_step`: False tells Opacus not to call the inner optimizer."""
        if not self.guards(optimizer):
            raise UnsupportedPlan("this optimizer is a copy of a guarded one: call make_private for it")
        optimizers.permit(optimizer, paid=False)
        if self.refusal is not None:
            return self._end(optimizer, self.refusal)
        try:
            return self._stepped(optimizer, pre_step)
        except BudgetExceeded as refusal:
            self.refusal = refusal
            return self._end(optimizer, refusal, first=True)
        except BaseException:
            self._drop(optimizer)
            raise
        finally:
            self._stepping = None

    def _stepped(self, optimizer: Any, pre_step: Callable[[], Any]) -> Any:
        if not optimizer.params:
            return False  # nothing is trained, so nothing goes out
        piece = self._draws.about_to_step()
        self._check_step(optimizer, piece)
        self._clips.append(optimizers.clip_norm(optimizer, self._module))
        optimizer._step_skip_queue[:] = [not piece.last]
        self._stepping = piece
        moves = pre_step()
        if bool(moves) != piece.last or (piece.last and not piece.taken):
            raise UnsupportedPlan(
                f"{type(optimizer).__name__} does not end a draw as Opacus's own optimizers do: it was not "
                "charged"
            )
        self._witness.clear()
        if piece.last:
            optimizers.permit(optimizer, paid=True)
        else:
            self._draws.take(piece)
        return moves

    def _check_step(self, optimizer: Any, piece: Piece) -> None:
        """All that can be wrong with a step, before its gradient is clipped. Raises UnsupportedPlan."""
        self._check_now(optimizer)
        if optimizer.step_hook is not self._hook:
            raise UnsupportedPlan(
                "Another step hook stands in the guard's place: this step would not be charged. "
                "Attach your hooks before the guard is made: it calls them after it has charged."
            )
        if optimizer._step_skip_queue not in ([], [not piece.last]):
            raise UnsupportedPlan("the optimizer's queue of skipped steps was changed by other code")
        if optimizer.accumulated_iterations != 1:
            raise UnsupportedPlan(
                f"{optimizer.accumulated_iterations} Poisson batches were accumulated for one step: a record "
                "may be in several of them, and the noise covers one. Call optimizer.step() for each batch, "
                "and use BatchMemoryManager for large ones."
            )
        self._witness.check(piece, ghost=optimizers.is_ghost(optimizer))
        optimizers.check_gradients(optimizer, self._module, piece.records)
        self._check_constants(optimizer, piece.draw.rate)
        if unseen := self.unseen_history():
            raise UnsupportedPlan(unseen)
        self._noise_state = _noise_state(optimizer)
        if piece.last and self._noise_state is not None and self._noise_state in self._draws.seen:
            raise UnsupportedPlan(
                "the noise of this step would be that of an earlier one: its random generator is in a "
                "state in which it was before. Seed a generator once, not for each step or epoch"
            )

    def _check_now(self, optimizer: Any) -> None:
        """What must hold when the guard is made and at each step."""
        if (
            isinstance(optimizer, AdaClipDPOptimizer) or hasattr(optimizer, "_adjusted_noise_multiplier")
        ) and not self._allow_adaptive_clipping:
            raise UnsupportedPlan(
                "Opacus adapts the clip norm by the exact size of the batch, which Poisson sampling keeps "
                "private, so the step's loss is above what its noise multiplier says. Use a fixed clip norm, "
                "or pass allow_adaptive_clipping=True to charge it as Opacus does."
            )
        check_no_dummies(self._loader)
        optimizers.positive("noise_multiplier", optimizer.noise_multiplier)
        optimizers.positive("max_grad_norm", optimizer.max_grad_norm)
        optimizers.clip_norm(optimizer, self._module)
        reduction = getattr(self._module, "loss_reduction", optimizer.loss_reduction)
        if reduction != optimizer.loss_reduction:
            raise UnsupportedPlan(
                f"the model's loss_reduction is {reduction!r}, the optimizer's {optimizer.loss_reduction!r}"
            )
        if (optimizer.loss_reduction, optimizer.expected_batch_size) != self._divisor:
            raise UnsupportedPlan(
                "the divisor of the gradient (loss_reduction, expected_batch_size) was changed: it must be a "
                "constant of the run, not the size of a batch. To change it, call make_private again"
            )

    def _check_constants(self, optimizer: Any, rate: float) -> None:
        """Under add_remove, and wherever they are stated: that the constants are what is used."""
        divisor = None if optimizer.loss_reduction == "sum" else optimizer.expected_batch_size
        self._stated.check(self.adjacency, rate, divisor, getattr(optimizer, "world_size", 1))

    def _first_mechanism(self, optimizer: Any) -> Mechanism:
        clip = optimizers.clip_norm(optimizer, self._module)
        return self._mechanism(optimizer, self._sampler.sample_rate, clip)

    def _mechanism(self, optimizer: Any, rate: float, clip: float) -> Mechanism:
        """What a step releases: noise over the norm that was clipped to, at the rate that was drawn at."""
        multiplier = optimizers.positive("noise_multiplier", optimizer.noise_multiplier)
        scale = optimizers.positive("max_grad_norm", optimizer.max_grad_norm)
        if scale < clip:  # a clip norm that was lowered between the parts of a draw, or for the noise alone
            multiplier *= scale / clip
        return dp_sgd_step(multiplier, rate, beyond=rounding_beyond())

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
        self._blocks.together(lambda buy: decided_by_rank_zero(buy, group))

    def _install(self, optimizer: Any) -> None:
        """Charge in front of the local accountant's hook, and stand around the step for clean stops."""
        accountant_hook = optimizer.step_hook

        def charge_then_account(stepping: Any) -> None:
            piece = self._stepping
            if piece is None or not piece.last or piece.taken:
                raise UnsupportedPlan("the step hook was called by other code than the guarded step")
            self._blocks.take(self._mechanism(stepping, piece.draw.rate, max(self._clips)))
            self._draws.take(piece)
            self._clips.clear()
            if self._noise_state is not None:
                self._draws.seen.add(self._noise_state)
            if accountant_hook is not None:
                accountant_hook(stepping)

        self._hook = charge_then_account
        optimizer.attach_step_hook(charge_then_account)
        optimizers.stand_around(optimizer, self)

    def _end(self, optimizer: Any, refusal: BudgetExceeded, *, first: bool = False) -> bool:
        """No step: False tells Opacus not to call the inner optimizer."""
        self._drop(optimizer)
        if first and self._on_exhausted != "raise":
            log.warning(
                "the budget of dataset %s refuses: stopped after %d paid %s, and no further step will do "
                "anything. %s",
                self.dataset,
                self.steps,
                "step" if self.steps == 1 else "steps",
                refusal.detail,
            )
        if not first:
            self._turned_away += 1
        if self._on_exhausted == "raise" or (self._on_exhausted is None and not self.steps):
            raise refusal
        return False

    def _drop(self, optimizer: Any) -> None:
        optimizers.permit(optimizer, paid=False)
        optimizers.drop_gradients(optimizer)
        self._draws.drop()
        self._clips.clear()

    # -- what the loader and the optimizer tell

    def handed_out(self, piece: Piece, unfinished: bool) -> None:
        """The loop received a batch. `unfinished`: the sum of another pass's draw waits in the optimizer."""
        optimizer = self._optimizer()
        if optimizer is None:
            return
        if unfinished:
            optimizers.drop_gradients(optimizer)
            self._clips.clear()
        optimizer._step_skip_queue[:] = [not piece.last]

    def cleared(self) -> None:
        """The optimizer's gradients were zeroed."""
        self._witness.clear()
        optimizer = self._optimizer()
        if optimizer is not None:
            optimizers.permit(optimizer, paid=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A guard is not pickled: it stands for charges of one process. Save guard.state_dict(), make a "
            "guard in the new process, and load it there."
        )


class Batches:
    """Batches until the budget refuses."""

    def __init__(self, guard: OpacusGuard, data_loader: Any) -> None:
        self._guard, self._loader = guard, data_loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if self._guard.stopped:
            return
        for batch in self._loader:
            yield batch
            if self._guard.refusal is not None:
                return


def _noise_state(optimizer: Any) -> bytes | None:
    """Where the generator of the noise is; None where this rank adds none, or it cannot be read."""
    if getattr(optimizer, "rank", 0) != 0:
        return None
    return generator_state(optimizer.generator, str(optimizer.params[0].device))

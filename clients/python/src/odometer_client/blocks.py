"""Steps of a run, paid for in blocks ahead of time. Knows no framework.

A block is a hold: it counts as spent from the start, and what of it is not used is given back by `settle`.
A process that dies settles nothing, so all of its block stays spent: it may have used any of it.
"""

import logging
import os
import re
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from odometer_client.base import OdometerError, ReplayedCharge
from odometer_client.documents import Receipt
from odometer_client.errors import BudgetExceeded, HoldExpired, HoldSettled, InvalidRequest, TooManyHolds
from odometer_client.holds import Hold
from odometer_client.keys import new_key
from odometer_client.mechanism import Mechanism

log: Final = logging.getLogger("odometer_client")


class Payments(Protocol):
    """Pays for steps of one dataset; raises what the client raises."""

    def hold(self, mechanism: Mechanism, count: int, key: str) -> Hold:
        """Hold so many steps."""
        ...

    def charge(self, mechanism: Mechanism, count: int, key: str) -> Receipt:
        """Charge so many steps for good."""
        ...


Buy = Callable[[Mechanism, int], int]
"""Pays for up to so many steps and says for how many, at least 1, or raises."""

DEFAULT_BLOCK: Final = 100
LARGEST_BLOCK: Final = 1_000_000
UNSETTLED_MAX: Final = 100
"""Settlements without an answer that are kept and tried again."""
_RUN_ID: Final = re.compile(r"[!-~]{1,80}")


@dataclass
class _Block:
    """Steps of one mechanism that are paid for."""

    mechanism: Mechanism
    size: int
    hold: Hold | None
    """What to settle; None for what was charged for good, and where another rank pays."""
    used: int = 0

    @property
    def left(self) -> int:
        return self.size - self.used


@dataclass(frozen=True)
class _Asked:
    """A request whose outcome is not known."""

    mechanism: Mechanism
    count: int
    key: str
    pay: Callable[[Mechanism, int, str], Receipt]


class Blocks:
    """Pays for steps before they run. One step of one mechanism at a time: `take`.

    Keys are (run_id, a nonce of this process and object, sequence): the same request asked again keeps
    its key, but a resumed or forked process never repeats one, because a step that runs again draws
    fresh noise and is a new release.

    Args:
        payments: makes holds and charges.
        run_id: names the run in its keys, 1 to 80 printable ASCII characters; made up when left out.
        block: most steps held at once, 1 to 1,000,000. A block of 1 is charged, not held.
        first: steps of the first block. From there blocks double; after the mechanism changes (a noise
            schedule) from 1.
    """

    def __init__(
        self, payments: Payments, *, run_id: str | None = None, block: int = DEFAULT_BLOCK, first: int = 1
    ) -> None:
        if not 1 <= block <= LARGEST_BLOCK:
            raise ValueError(f"block is {block}: give 1 to {LARGEST_BLOCK} steps")
        self.run_id = _valid_run_id(new_key() if run_id is None else run_id)
        self.taken = 0
        """Steps that were paid for and may have run, in this process and those it resumes."""
        self.charged = 0
        """Steps that were charged or held, without those given back, here and in what it resumes."""
        self.receipt: Receipt | None = None
        """The last receipt."""
        self._together: Buy | None = None
        self._trouble: OdometerError | None = None
        self._payments = payments
        self._most = block
        self._first = min(first, block)
        self._sequence = 0
        self._start_process()

    def together(self, around: Callable[[Buy], Buy]) -> None:
        """Buy as a group of ranks that step together: `around` the buying, which one of them does."""
        self._together = around(self._buy)

    def take(self, mechanism: Mechanism) -> None:
        """Pay for one step. Whatever it raises, the step is not paid for and must not run.

        Raises: BudgetExceeded when not even one step fits; OutcomeUnknown and others as a charge does.
        """
        self._here()
        with self._lock:
            block = self._block
            if block is None or block.mechanism != mechanism or not block.left:
                try:
                    self._settle()  # before more is asked for: what is given back makes room
                except OdometerError as trouble:
                    self._trouble = trouble  # raised where all ranks hear of it: in the buying
                block = self._bought(mechanism)
            block.used += 1
            self.taken += 1

    def settle(self) -> None:
        """Give back what is not used. The next step takes a new block.

        Trouble is logged and not raised: what is not settled stays spent. It raises only what means that
        steps ran unpaid: HoldSettled, when somebody else settled this run's hold for another number.
        """
        self._here()
        with self._lock:
            self._settle()

    def end(self) -> None:
        """Give back what is not used, where a process or its client ends. Never waits, raises nothing.

        What stays spent is said in the log.
        """
        if os.getpid() != self._process:
            return  # a forked process: the block is its parent's
        if not self._lock.acquire(blocking=False):
            log.warning("a step was being paid for when the process ended: its block stays spent")
            return
        try:
            self._settle()
        except Exception as trouble:  # noqa: BLE001
            log.warning("%s", trouble)
        finally:
            self._lock.release()
        for hold, used in self._unsettled:
            log.warning(
                "hold %s of %s stays spent, %d of its steps were taken: settle it by hand",
                hold.id,
                hold.dataset,
                used,
            )

    @property
    def unsettled(self) -> bool:
        """Whether this process has a hold to settle."""
        held = self._block is not None and self._block.hold is not None
        return os.getpid() == self._process and (held or bool(self._unsettled))

    def charge(self, mechanism: Mechanism, count: int) -> None:
        """Charge releases that are no steps, for good, under a key of this run."""
        self._here()
        with self._lock:
            asked = self._asking(mechanism, count, held=False)
            receipt = asked.pay(mechanism, count, asked.key)
            if receipt.replayed and not receipt.retried:
                raise ReplayedCharge(
                    f"The new key {asked.key!r} was already charged: give each run its own run_id"
                )
            self.receipt = receipt

    @property
    def prepaid(self) -> int:
        """Steps that are paid for and not taken, usable by this process alone."""
        return 0 if self._block is None else self._block.left

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps. Prepaid steps are not in it, for two processes could both run them.

        They are given back first, so that they are not lost with this process. Not where ranks step
        together: they may not all save, and would part over who has a block left.
        """
        if self._together is None:
            self.settle()
        return {
            "run_id": self.run_id,
            "sequence": self._sequence,
            "taken": self.taken,
            "charged": self.charged,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with a run from a checkpoint. Steps that run again are charged again."""
        self.settle()
        self.run_id = _valid_run_id(state["run_id"])
        self._sequence = max(self._sequence, int(state["sequence"]))
        self.taken, self.charged = int(state["taken"]), int(state["charged"])
        self._start_process()

    def _here(self) -> None:
        """After a fork: the parent's block is the parent's to use and to settle."""
        if os.getpid() != self._process:
            self._start_process()

    def _start_process(self) -> None:
        """Begin without prepaid steps and with a nonce that no other process has."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._nonce = secrets.token_hex(8)
        self._block: _Block | None = None
        self._hold: Hold | None = None
        self._trouble = None
        self._pending: _Asked | None = None
        self._unsettled: list[tuple[Hold, int]] = []
        self._last: tuple[Mechanism, int] | None = None

    def _bought(self, mechanism: Mechanism) -> _Block:
        """A new block."""
        self._hold = None
        size = (self._together or self._buy)(mechanism, self._wanted(mechanism))
        self._block = _Block(mechanism, size, self._hold)
        self._last = (mechanism, size)
        self.charged += size
        return self._block

    def _wanted(self, mechanism: Mechanism) -> int:
        if self._last is None:
            return self._first
        before, size = self._last
        return min(self._most, 2 * size) if mechanism == before else 1

    def _buy(self, mechanism: Mechanism, wanted: int) -> int:
        """Pay for up to `wanted` steps; on a refusal for as many as fit, asked under a new key."""
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        asked, again = self._pending, True  # its outcome is not known: the same key is asked again
        if asked is None or asked.mechanism != mechanism:
            asked, again = self._asking(mechanism, wanted), False
        while True:
            self._pending = asked
            try:
                receipt = asked.pay(mechanism, asked.count, asked.key)
            except BudgetExceeded as refusal:
                self._pending = None
                fewer = _smaller(refusal, asked.count)
                if not fewer:
                    raise
                asked, again = self._asking(mechanism, fewer), False
                continue
            except TooManyHolds:
                log.warning("too many holds are open: %d steps are charged and not held", asked.count)
                asked, again = self._asking(mechanism, asked.count, held=False), False
                continue
            self._pending = None
            if receipt.replayed and not (receipt.retried or again):
                raise ReplayedCharge(
                    f"The new key {asked.key!r} was already charged (entry {receipt.sequence} of "
                    f"{receipt.dataset!r}). Two processes share keys: give each run a run_id of its own."
                )
            self.receipt = receipt
            self._hold = receipt if isinstance(receipt, Hold) else None
            return asked.count

    def _asking(self, mechanism: Mechanism, count: int, *, held: bool = True) -> _Asked:
        """A new request, under a new key."""
        self._sequence += 1
        key = f"{self.run_id}.{self._nonce}.{self._sequence}"
        pay = self._payments.hold if held and count > 1 else self._payments.charge
        return _Asked(mechanism, count, key, pay)

    def _settle(self) -> None:
        """Close the block, and try again what had no answer. From here on nothing more is taken of it."""
        block, self._block = self._block, None
        if block is not None and block.hold is not None:
            self._unsettled.append((block.hold, block.used))
        waiting, self._unsettled = self._unsettled[-UNSETTLED_MAX:], []
        while waiting:
            hold, used = waiting.pop(0)
            try:
                self.charged -= sum(hold.settle(used).held) - used
            except HoldExpired:
                log.warning("hold %s of %s expired: what it held stays spent", hold.id, hold.dataset)
                if block is not None and hold is block.hold and self._together is None:
                    self._block = _Block(block.mechanism, block.size, None, block.used)
            except (HoldSettled, InvalidRequest):
                self._unsettled += waiting
                raise
            except OdometerError as trouble:
                log.warning("hold %s of %s is not settled, and spent: %s", hold.id, hold.dataset, trouble)
                self._unsettled.append((hold, used))  # for the same number: it may have been settled
            except BaseException:  # a client that was closed, an interrupt
                self._unsettled += [(hold, used), *waiting]
                raise


def _smaller(refusal: BudgetExceeded, count: int) -> int:
    """How many to ask for after `count` was refused; always fewer, 0 when none fits."""
    fits = (refusal.problem.get("would_fit") or {}).get("largest_count")
    return min(fits, count - 1) if isinstance(fits, int) else count // 2


def _valid_run_id(run_id: str) -> str:
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(f"run_id is {run_id!r}: give 1 to 80 printable ASCII characters without spaces")
    return run_id

"""Releases of a run, paid for in blocks ahead of time. Knows no framework.

What of a block is never used stays charged. Take small blocks where that matters.
"""

import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from odometer_client.base import ReplayedCharge
from odometer_client.documents import Receipt
from odometer_client.errors import BudgetExceeded
from odometer_client.keys import new_key
from odometer_client.mechanism import Mechanism

Charge = Callable[[Mechanism, int, str], Receipt]
"""Charges a mechanism that many times under that idempotency key, or raises."""
Buy = Callable[[Mechanism, int], int]
"""Pays for up to so many steps and says for how many, at least 1, or raises."""

DEFAULT_BLOCK: Final = 100
LARGEST_BLOCK: Final = 1_000_000
_RUN_ID: Final = re.compile(r"[!-~]{1,80}")


class Blocks:
    """Pays for steps before they run. One step of one mechanism at a time: `take`.

    Keys are (run_id, a nonce of this process and object, sequence): the same request asked again keeps
    its key, but a resumed or forked process never repeats one, because a step that runs again draws
    fresh noise and is a new release.

    Args:
        charge: makes one charge.
        run_id: names the run in its keys, 1 to 80 printable ASCII characters; made up when left out.
        block: steps per charge, 1 to 1,000,000. After the mechanism changes (a noise schedule) it starts
            at 1 and doubles, so that a schedule that changes each step wastes one block and not one
            for each step.
    """

    def __init__(self, charge: Charge, *, run_id: str | None = None, block: int = DEFAULT_BLOCK) -> None:
        if not 1 <= block <= LARGEST_BLOCK:
            raise ValueError(f"block is {block}: give 1 to {LARGEST_BLOCK} steps")
        self.run_id = _valid_run_id(new_key() if run_id is None else run_id)
        self.taken = 0
        """Steps that were paid for and may have run, in this process and those it resumes."""
        self.charged = 0
        """Steps that were charged, in this process and those it resumes."""
        self.buy: Buy = self._buy
        """How a block is bought; distributed training puts its own around it."""
        self._charge = charge
        self._block = block
        self._sequence = 0
        self._current: Mechanism | None
        self._pending: tuple[Mechanism, int, str] | None
        self._start_process()

    def take(self, mechanism: Mechanism) -> None:
        """Pay for one step. Whatever it raises, the step is not paid for and must not run.

        Raises: BudgetExceeded when not even one step fits; OutcomeUnknown and others as a charge does.
        """
        if os.getpid() != self._process:
            self._start_process()
        with self._lock:
            if not self._prepaid[mechanism]:
                bought = self.buy(mechanism, self._wanted(mechanism))
                self._size, self._current = bought, mechanism
                self._prepaid[mechanism] += bought
                self.charged += bought
            self._prepaid[mechanism] -= 1
            self.taken += 1

    @property
    def prepaid(self) -> int:
        """Steps that are charged and not taken, usable by this process alone."""
        return self._prepaid.total()

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps. Prepaid steps are not in it: two processes could both run them."""
        return {
            "run_id": self.run_id,
            "sequence": self._sequence,
            "taken": self.taken,
            "charged": self.charged,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with a run from a checkpoint. Steps that run again are charged again."""
        self.run_id = _valid_run_id(state["run_id"])
        self._sequence = max(self._sequence, int(state["sequence"]))
        self.taken, self.charged = int(state["taken"]), int(state["charged"])
        self._start_process()

    def _start_process(self) -> None:
        """Begin without prepaid steps and with a nonce that no other process has."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._nonce = secrets.token_hex(8)
        self._prepaid: Counter[Mechanism] = Counter()
        self._pending = None
        self._current = None
        self._size = self._block

    def _wanted(self, mechanism: Mechanism) -> int:
        if self._current is None:
            return self._block
        return min(self._block, 2 * self._size) if mechanism == self._current else 1

    def _buy(self, mechanism: Mechanism, wanted: int) -> int:
        """Charge up to `wanted` steps; on a refusal as many as fit, asked under a new key."""
        if self._pending is not None and self._pending[0] == mechanism:
            _, count, key = self._pending  # its outcome is not known: the same key is asked again
            asked_before = True
        else:
            count, key, asked_before = wanted, self._new_key(), False
        while True:
            self._pending = (mechanism, count, key)
            try:
                receipt = self._charge(mechanism, count, key)
            except BudgetExceeded as refusal:
                self._pending = None
                fewer = _smaller(refusal, count)
                if not fewer:
                    raise
                count, key, asked_before = fewer, self._new_key(), False
                continue
            self._pending = None
            if receipt.replayed and not (receipt.retried or asked_before):
                raise ReplayedCharge(
                    f"The new key {key!r} was already charged (entry {receipt.sequence} of "
                    f"{receipt.dataset!r}). Two processes share keys: give each run a run_id of its own."
                )
            return count

    def _new_key(self) -> str:
        self._sequence += 1
        return f"{self.run_id}.{self._nonce}.{self._sequence}"


def _smaller(refusal: BudgetExceeded, count: int) -> int:
    """How many to ask for after `count` was refused; always fewer, 0 when none fits."""
    fits = (refusal.problem.get("would_fit") or {}).get("largest_count")
    return min(fits, count - 1) if isinstance(fits, int) else count // 2


def _valid_run_id(run_id: str) -> str:
    if not _RUN_ID.fullmatch(run_id):
        raise ValueError(f"run_id is {run_id!r}: give 1 to 80 printable ASCII characters without spaces")
    return run_id

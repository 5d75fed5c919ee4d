"""OpenDP: every query is paid before it sees data, at the cost that its own privacy map states.

    context = dp.Context.compositor(data=rows, privacy_unit=dp.unit_of(contributions=1),
                                    privacy_loss=dp.loss_of(epsilon=1.0), split_evenly_over=3)
    with BudgetedContext.wrap(context, client, "patients") as budgeted:
        budgeted.query().count().laplace().release()    # raises instead, when the budget refuses

A context with a loss of its own holds all of it at its first query, and gives back what was not asked. One
without (`privacy_loss=(dp.max_divergence(), math.inf)`) charges each query alone: the service decides.

The dataset's unit and the context's privacy unit must say the same: `contributions=k` protects a person
with up to k rows, and that person is the unit. A query that fails after it was paid stays paid: whether
something was learned from it, nobody can say.
"""

import contextlib
import logging
import os
import secrets
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Self

from opendp.context import Context
from opendp.mod import Measurement, OpenDPException

from odometer_client.base import OdometerError, ReplayedCharge, UnsupportedPlan
from odometer_client.client import Client
from odometer_client.documents import Receipt
from odometer_client.errors import BudgetExceeded
from odometer_client.holds import Hold
from odometer_client.keys import new_key
from odometer_client.mechanism import Mechanism
from odometer_client.payments import HOLD_EXPIRES_IN_S
from odometer_client.queries.opendp_losses import (
    ITEMS_MAX,
    Adjacency,
    Charges,
    Share,
    adjacency_of,
    context_shares,
    finite_pair,
    mechanism_of,
    mechanisms_of,
    not_below,
    stated_share,
)

__all__ = [
    "ITEMS_MAX",
    "Adjacency",
    "BudgetedContext",
    "ChargedMeasurement",
    "Charges",
    "Runner",
    "Share",
    "adjacency_of",
    "charged",
    "mechanism_of",
    "mechanisms_of",
    "not_below",
]

log: Final = logging.getLogger("odometer_client")


class Runner:
    """Charges one dataset for OpenDP measurements. What both forms below share.

    Args:
        client: charges.
        dataset: the dataset's name.
        adjacency: left out, it follows from the measurement's input metric (symmetric and insert-delete
            distance: add_remove; change-one and Hamming: replace_one). State it for other metrics, or
            where d_in was chosen for it (symmetric distance 2 covers replacing one row).
        run_id: names the run in its idempotency keys; made up when left out.
    """

    def __init__(
        self, client: Client, dataset: str, adjacency: Adjacency | None = None, run_id: str | None = None
    ) -> None:
        self.receipt: Receipt | None = None
        """The last receipt."""
        self._client = client
        self._dataset = dataset
        self._adjacency = adjacency
        self._run_id = new_key() if run_id is None else run_id
        self._lock = threading.Lock()
        self._process = 0
        self._sequence = 0
        self._pending: tuple[Any, str] | None = None

    def charge(self, measurement: Measurement, d_in: Any) -> None:
        """Pay for one release of `measurement` at input distance `d_in`, or raise."""
        if not hasattr(measurement, "map"):
            raise UnsupportedPlan(
                f"A {type(measurement).__name__} has no cost of its own: it grows with later queries. "
                "Charge those, or use a compositor whose loss is fixed when it is made."
            )
        self.pay([(one, 1) for one in mechanisms_of(measurement, d_in)], self.adjacency(measurement))

    def adjacency(self, about: Measurement) -> Adjacency:
        """As it was said, or as the input metric of a measurement says it."""
        return self._adjacency or adjacency_of(about)

    def pay(self, charges: Charges, adjacency: Adjacency, expires_in_s: int | None = None) -> Receipt:
        """Charge all of it or nothing; with `expires_in_s` hold it. Raises what a charge raises.

        Asked again after an outcome that is not known, the same request keeps its key.
        """
        with self._lock:
            asked = (tuple(charges), adjacency, expires_in_s)
            key, again = self._key(asked)
            about: dict[str, Any] = {"key": key, "adjacency": adjacency}
            what: Any = charges[0][0] if len(charges) == 1 else charges
            count = charges[0][1] if len(charges) == 1 else None
            try:
                if expires_in_s is None:
                    receipt = self._client.charge(self._dataset, what, count, **about)
                else:
                    receipt = self._client.hold(
                        self._dataset, what, count, expires_in_s=expires_in_s, **about
                    )
            except BudgetExceeded:
                self._pending = None
                raise
            self._pending = None
            if receipt.replayed and not (receipt.retried or again):
                raise ReplayedCharge(
                    f"The new key {key!r} was already charged (entry {receipt.sequence} of "
                    f"{receipt.dataset!r}). Two processes share keys: give each run a run_id of its own."
                )
            self.receipt = receipt
            return receipt

    def _key(self, asked: Any) -> tuple[str, bool]:
        """The key of a request, and whether it was asked before. No two processes have one in common."""
        if os.getpid() != self._process:
            self._process, self._nonce, self._pending = os.getpid(), secrets.token_hex(8), None
        if self._pending is not None and self._pending[0] == asked:
            return self._pending[1], True
        self._sequence += 1
        key = f"{self._run_id}.{self._nonce}.{self._sequence}"
        self._pending = asked, key
        return key, False


@dataclass
class _Held:
    """A context's loss, held, and what was taken of it. Knows nothing of the context, or of its data."""

    hold: Hold
    runner: Runner
    adjacency: Adjacency
    shares: dict[Share, int]
    """How many of each share queries may take."""
    parts: int
    """Of how many charges the hold is, where one loss is held for all of them; 0 where one is for each."""
    process: int = field(default_factory=os.getpid)
    taken: Counter[Share] = field(default_factory=Counter)
    asked: list[Mechanism] = field(default_factory=list)
    """What queries cost that took of one share for all."""
    asked_before: int = 0
    """How many of them there were before the last query."""
    failed: bool = False
    """Whether one of them failed, so that OpenDP does not count what it may have let out."""

    def take(self, share: Share) -> bool:
        """Take one of a share, if one is left."""
        if self.taken[share] >= self.shares.get(share, 0):
            return False
        self.taken[share] += 1
        return True

    def used(self) -> list[int]:
        """As a settlement says it: one number for each charge."""
        if self.parts:
            return [int(bool(self.asked) or self.taken.total() > 0)] * self.parts
        return [self.taken[share] for share in self.shares for _ in share]

    def give_back(self) -> None:
        """Settle for what was asked. Trouble is logged: what is not given back stays spent."""
        if self.process != os.getpid():
            return  # after a fork it is the parent's
        try:
            if self.asked and self._charged_alone():
                self.asked.clear()
            self.hold.settle(self.used())
        except OdometerError as trouble:
            log.warning("hold %s of %s is not settled: %s", self.hold.id, self.hold.dataset, trouble)

    def _charged_alone(self) -> bool:
        """Charge what was asked, beside what is still held; False where that does not fit."""
        charges = list(Counter(self.asked).items())
        if len(charges) > ITEMS_MAX:
            return False
        with contextlib.suppress(BudgetExceeded):
            self.runner.pay(charges, self.adjacency)
            return True
        return False


class BudgetedContext(Context):  # type: ignore[misc]
    """An OpenDP Context whose every query is paid first: made with `wrap`, ended with `close` or `with`."""

    runner: Runner
    hold_expires_in_s: int
    _held: _Held | None
    _end: "weakref.finalize[Any, Any] | None"
    """Gives back what is not asked: when the context is closed or gone, or the process ends as it should."""
    _drawing: "threading.RLock"

    @classmethod
    def wrap(
        cls,
        context: Context,
        client: Client,
        dataset: str,
        *,
        adjacency: Adjacency | None = None,
        run_id: str | None = None,
        hold_expires_in_s: int = HOLD_EXPIRES_IN_S,
    ) -> Self:
        """The same context, paid for; use it instead of `context`, which still answers unpaid.

        Where the context has a loss of its own (split into shares, or spent as queries come), all of it is
        held at the first query, for `hold_expires_in_s` seconds, and `close` gives back what was not asked.
        A compositor inside a query is paid once, for all that may be asked of it.
        """
        wrapped = cls(
            accountant=context.accountant,
            queryable=context.queryable,
            d_in=context.d_in,
            d_mids=context.d_mids,
            d_out=context.d_out,
            query_space=context.query_space,
        )
        wrapped.d_mids_consumed = context.d_mids_consumed
        wrapped.runner = Runner(client, dataset, adjacency, run_id)
        wrapped.hold_expires_in_s = hold_expires_in_s
        wrapped._held, wrapped._end, wrapped._drawing = None, None, threading.RLock()
        return wrapped

    @staticmethod
    def compositor(*arguments: Any, **named: Any) -> NoReturn:  # noqa: ARG004
        """Refused: OpenDP would return a plain Context, and nothing would be charged."""
        raise TypeError(
            "Make a Context with Context.compositor(...), then BudgetedContext.wrap(context, ...)"
        )

    def __call__(self, query: Measurement) -> Any:
        """Pay, then ask. Every release of every query comes through here."""
        with self._drawing:
            held, share = self._pay(query)
            refused = held is not None and self._is_refused(query)
            try:
                return super().__call__(query)
            except BaseException:
                if held is not None and refused:
                    held.taken.subtract([share] if share else [])
                    del held.asked[held.asked_before :]
                elif held is not None:
                    held.failed = True
                raise

    def close(self) -> None:
        """Give back what was held and not asked. A later query is charged alone.

        Trouble is logged and not raised: what is not given back stays spent.
        """
        with self._drawing:
            if self._end is not None:
                self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def _pay(self, query: Measurement) -> tuple[_Held | None, Share | None]:
        """Pay for a query: of what the context holds, else alone. What it took, where it took anything."""
        held = self._hold()
        if held is not None and self.d_mids is None and not held.failed:  # OpenDP keeps to the whole
            held.asked_before = len(held.asked)
            held.asked += mechanisms_of(query, self.d_in)
            return held, None
        if held is not None and self.d_mids:
            share = stated_share(self.accountant, self.d_mids[0])
            held.asked_before = len(held.asked)
            if held.take(share):
                return held, share
        self.runner.charge(query, self.d_in)
        return None, None

    def _hold(self) -> _Held | None:
        """The hold of the context's loss, made at the first query; None if there is none."""
        if self._held is not None and self._held.process == os.getpid():
            return self._held if self._end is not None and self._end.alive else None
        found = context_shares(self)
        if found is None:
            return None
        shares, charges, whole = found
        adjacency = self.runner.adjacency(self.accountant)
        hold = self.runner.pay(charges, adjacency, self.hold_expires_in_s)
        if not isinstance(hold, Hold):
            raise TypeError(f"a hold was asked for, and {hold!r} came")
        self._held = _Held(hold, self.runner, adjacency, shares, len(charges) if whole else 0)
        self._end = weakref.finalize(self, self._held.give_back)
        return self._held

    def _is_refused(self, query: Measurement) -> bool:
        """Whether OpenDP will surely refuse the query for what it costs: it does so before data is seen."""
        with contextlib.suppress(UnsupportedPlan):
            if self.d_mids:
                return not query.check(self.d_in, self.d_mids[0])
            if self.d_mids is None:
                try:
                    lost = finite_pair(self.queryable.privacy_loss(self.d_in))
                except OpenDPException as error:
                    return "exhausted" in str(error)
                costs = zip(lost, finite_pair(query.map(self.d_in)), finite_pair(self.d_out), strict=True)
                return any(one + more > most for one, more, most in costs)
        return False


class ChargedMeasurement:
    """A measurement that is charged before each invocation. Chain first, wrap last."""

    def __init__(self, measurement: Measurement, d_in: Any, runner: Runner) -> None:
        self.runner = runner
        self._measurement = measurement
        self._d_in = d_in

    def invoke(self, data: Any) -> Any:
        """Charge one release, then run the measurement on `data`."""
        self.runner.charge(self._measurement, self._d_in)
        return self._measurement.invoke(data)

    __call__: Callable[[Self, Any], Any] = invoke

    def __rshift__(self, other: Any) -> NoReturn:
        raise TypeError("Chain the measurement itself (measurement >> postprocessing), then wrap the result")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def charged(
    measurement: Measurement,
    d_in: Any,
    client: Client,
    dataset: str,
    *,
    adjacency: Adjacency | None = None,
    run_id: str | None = None,
) -> ChargedMeasurement:
    """`measurement`, charged at input distance `d_in` before each invocation.

    `d_in` is how far apart two datasets can be that differ in one of the dataset's units.
    """
    return ChargedMeasurement(measurement, d_in, Runner(client, dataset, adjacency, run_id))

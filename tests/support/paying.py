"""A ledger of steps for tests of what pays for them: remembers keys and holds, and can lose answers."""

from collections.abc import Sequence
from typing import Any

from odometer_client import BudgetExceeded, Hold, OutcomeUnknown, Receipt, Settlement
from odometer_client.errors import HoldExpired, HoldSettled, TooManyHolds
from odometer_client.mechanism import Mechanism


class Ledger:
    """Pays for what fits. Counts steps of any mechanism alike."""

    def __init__(self, fits: int = 10**9, *, tells: bool = True, hint: int | None = None) -> None:
        self.fits = fits
        self.asked: list[tuple[str, Mechanism, int, str]] = []
        self.keys: dict[str, int] = {}
        self.open: dict[int, int] = {}
        self.closed: dict[int, int] = {}
        self.settled: list[int] = []
        self.spent = 0
        self.full = self.expired = self.replays = self.retried = self.loses = self.loses_settlements = False
        self.takes_settlements = True
        self._tells, self._hint = tells, hint
        self._held: dict[int, int] = {}

    @property
    def counts(self) -> list[int]:
        """Steps of each request."""
        return [count for _, _, count, _ in self.asked]

    @property
    def kinds(self) -> list[str]:
        """What each request asked for: a hold or a charge."""
        return [kind for kind, *_ in self.asked]

    def charge(self, mechanism: Mechanism, count: int, key: str) -> Receipt:
        """As a client does."""
        self.asked.append(("charge", mechanism, count, key))
        return Receipt(self._recorded(count, key), retried=self.retried)

    def hold(self, mechanism: Mechanism, count: int, key: str) -> Hold:
        """As a client does."""
        self.asked.append(("hold", mechanism, count, key))
        if self.full:
            raise TooManyHolds({"detail": "full"})
        document = self._recorded(count, key)
        number = document["sequence"]
        self._held.setdefault(number, count)
        if number not in self.closed:
            self.open[number] = count
        hold = {"id": str(number), "expires": "2030"}
        return Hold({**document, "hold": hold}, _Settles(self), retried=self.retried)

    def settle(self, number: int, used: int) -> Settlement:
        """As a client does."""
        if self.takes_settlements:
            self._settle(number, used)
        if self.loses_settlements:
            raise OutcomeUnknown("lost")
        return Settlement({"held": [self._held[number]], "used": [used]})

    def _settle(self, number: int, used: int) -> None:
        if number in self.closed:
            if self.closed[number] != used:
                raise HoldSettled({"detail": "settled before"})
            return
        if self.expired:
            raise HoldExpired({"detail": "too late"})
        assert used <= self.open[number]
        given_back = self.open.pop(number) - used
        self.closed[number] = used
        self.settled.append(used)
        self.spent -= given_back
        self.fits += given_back

    def _recorded(self, count: int, key: str) -> dict[str, Any]:
        replayed = self.replays or key in self.keys
        if key not in self.keys:
            if count > self.fits:
                largest = self._hint if self._hint is not None else self.fits
                raise BudgetExceeded(
                    {"detail": "full", "would_fit": {"largest_count": largest if self._tells else None}}
                )
            self.fits -= count
            self.spent += count
            self.keys[key] = len(self.keys) + 1
        if self.loses:
            raise OutcomeUnknown("lost", key)
        return {"dataset": "d", "sequence": self.keys[key], "replayed": replayed}


class _Settles:
    """The part of a client that a hold settles through."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def settle(self, dataset: str, hold_id: str, used: int | Sequence[int]) -> Settlement:
        """As a client does."""
        assert dataset == "d"
        assert isinstance(used, int)
        return self._ledger.settle(int(hold_id), used)

"""Charges made ahead of the work, that may be settled for less. Unsettled, a hold is spent for good."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from odometer_client.documents import Receipt, Reply
from odometer_client.mechanisms import RenyiCurve


class Settling(Protocol):
    """What can settle a hold: a client."""

    def settle(self, dataset: str, hold_id: str, used: int | Sequence[int]) -> "Settlement":
        """Charge a hold for what was used of it."""
        ...

    def settle_sanitised(
        self,
        dataset: str,
        hold_id: str,
        used: Sequence[int],
        curves: Sequence[RenyiCurve | None],
        failure_probability: float,
    ) -> "Settlement":
        """Charge a hold for what was used of it, at a sanitised figure."""
        ...


def sanitised_body(curves: Sequence[RenyiCurve | None], failure_probability: float) -> dict[str, Any]:
    """A sanitised figure as the service takes it. Raises TypeError for anything but curves."""
    given: Sequence[object] = curves
    if not all(isinstance(curve, RenyiCurve | None) for curve in given):  # votes, for one: they stay here
        raise TypeError("a sanitised figure is a RenyiCurve or None for each charge")
    return {
        "curves": [None if curve is None else curve.document() for curve in curves],
        "failure_probability": failure_probability,
    }


class Settlement(Reply):
    """What a hold was settled for, once and for all."""

    @property
    def used(self) -> list[int]:
        """How many releases it was charged for, one number for each of its charges."""
        return list(self["used"])

    @property
    def held(self) -> list[int]:
        """How many had been held."""
        return list(self["held"])

    @property
    def replayed(self) -> bool:
        """Whether it had been settled before, for the same."""
        return bool(self["replayed"])

    @property
    def left(self) -> list[dict[str, Any]]:
        """Per budget what is left now."""
        return list(self["left"])


class Hold(Receipt):
    """A receipt for up to so many releases. What is not used is given back by `settle`."""

    __slots__ = ("_client",)

    def __init__(self, members: Mapping[str, Any], client: Settling, *, retried: bool = False) -> None:
        super().__init__(members, retried=retried)
        self._client = client

    @property
    def id(self) -> str:
        """What the dataset calls the hold."""
        return str(self["hold"]["id"])

    @property
    def expires(self) -> str:
        """UTC, ISO 8601: after it the hold cannot be settled any more and is spent for good."""
        return str(self["hold"]["expires"])

    def settle(self, used: int | Sequence[int]) -> Settlement:
        """Charge it for `used` releases (of a list: one number for each charge) and give back the rest.

        Never say fewer than really went out. Settling again for the same changes nothing, so asking again
        after a lost answer is safe. Raises HoldExpired, HoldSettled (for another number), and others.
        """
        return self._client.settle(self.dataset, self.id, used)

    def settle_sanitised(
        self, used: Sequence[int], curves: Sequence[RenyiCurve | None], failure_probability: float
    ) -> Settlement:
        """Charge it for what was used, its PATE queries at upper bounds that may be told.

        used, curves: one for each charge; a curve is for all used releases of it together, None for what is
        charged as held. Send nothing but what a sanitiser returns (`pate_votes.sanitise`): the raw cost
        of votes is private. The hold also has the charge of telling the curves, and an `Approximate` of ε 0
        with at least the failure probability, both used; otherwise InvalidRequest. Raises as `settle`.
        """
        return self._client.settle_sanitised(self.dataset, self.id, used, curves, failure_probability)


class OpenHold(Reply):
    """A hold that can still be settled, as the dataset lists it: by its maker or an admin."""

    __slots__ = ("_client", "_dataset")

    def __init__(self, members: Mapping[str, Any], client: Settling, dataset: str) -> None:
        super().__init__(members)
        self._client = client
        self._dataset = dataset

    @property
    def id(self) -> str:
        return str(self["id"])

    @property
    def expires(self) -> str:
        """UTC, ISO 8601: until when it can be settled."""
        return str(self["expires"])

    @property
    def principal(self) -> str:
        """Whose it is."""
        return str(self["principal"])

    @property
    def charges(self) -> list[dict[str, Any]]:
        """What is held: mechanisms and counts."""
        return list(self["charges"])

    def settle(self, used: int | Sequence[int]) -> Settlement:
        """As `Hold.settle`. Only who knows how many releases went out may say so."""
        return self._client.settle(self._dataset, self.id, used)

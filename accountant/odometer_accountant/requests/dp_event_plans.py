"""Plans: the mechanisms that an event of dp_accounting amounts to, and how plans combine."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import ValidationError

from odometer_accountant.errors import InvalidRequest
from odometer_accountant.mechanisms import ANY_MECHANISM, Mechanism
from odometer_accountant.mechanisms.charge import COUNT_MAX
from odometer_accountant.numerics.rounding import decimal
from odometer_accountant.requests.validation_errors import invalid

Plan = dict[str, tuple[dict[str, Any], int]]
"""Each mechanism once, with how often it runs; by the text of its document."""
Fields = Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """An event and its place in the tree."""

    read: Callable[[Any, str, int], Plan]
    """Reads an event within this one: (event, path, depth)."""
    notes: list[str]
    path: str
    name: str
    depth: int

    def under(self, event: Any, field: str) -> Plan:
        """The plan of an event within this one."""
        return self.read(event, f"{self.path}.{field}", self.depth + 1)

    def one(self, document: dict[str, Any]) -> Plan:
        """The plan of one mechanism that runs once. Raises InvalidRequest for invalid parameters."""
        if document["kind"] not in Mechanism.registry:
            self.refuse(f"this version of the service has no mechanism {document['kind']!r} to charge it as")
        try:
            mechanism = ANY_MECHANISM.validate_python(document)
        except ValidationError as error:
            try:
                invalid(error, document, ANY_MECHANISM)
            except InvalidRequest as said:
                self.refuse(f"as {document['kind']}, {said.detail.removeprefix('body: ')}")
        told = mechanism.document()
        return {repr(told): (told, 1)}

    def nothing(self, why: str) -> Plan:
        """The plan of an event without a loss, with a note: perhaps it was not meant."""
        self.notes.append(f"{self.path}: {self.name}: {why}: it loses nothing and is not charged")
        return {}

    def refuse(self, why: str) -> NoReturn:
        refuse(self.path, f"{self.name}: {why}")


def refuse(path: str, why: str) -> NoReturn:
    """Raise InvalidRequest for the event or field at `path`."""
    raise InvalidRequest.of(path, why)


def added(plans: Sequence[Plan], here: Event) -> Plan:
    """Plans in sequence: counts of the same mechanism add up."""
    total: Plan = {}
    for plan in plans:
        for text, (mechanism, count) in plan.items():
            before = total[text][1] if text in total else 0
            total[text] = (mechanism, _count(before + count, here))
    return total


def repeated(plan: Plan, times: int, here: Event) -> Plan:
    """A plan run `times` times."""
    if times == 0:
        return here.nothing("runs 0 times")
    return {text: (mechanism, _count(count * times, here)) for text, (mechanism, count) in plan.items()}


def _count(count: int, here: Event) -> int:
    if count > COUNT_MAX:
        here.refuse(
            f"a mechanism of it runs {count} times, and one charge has {COUNT_MAX} at most: charge parts"
        )
    return count


def as_one(plan: Plan, here: Event) -> dict[str, Any] | None:
    """A plan that runs on one sample, or is repeated as a whole, as one mechanism; None for an empty plan.

    The parts are never sampled one by one: several releases of one sample cost more than that.
    """
    parts = list(plan.values())
    if not parts:
        return None
    if len(parts) == 1 and parts[0][1] == 1:
        return parts[0][0]
    if all(mechanism["kind"] == "gaussian" and mechanism["noise_multiplier"] for mechanism, _ in parts):
        return next(iter(here.one(_one_gaussian(parts)).values()))[0]
    document = {
        "kind": "composed",
        "mechanisms": [mechanism for mechanism, _ in parts],
        "counts": [count for _, count in parts],
    }
    return next(iter(here.one(document).values()))[0]


def _one_gaussian(parts: Sequence[tuple[dict[str, Any], int]]) -> dict[str, Any]:
    """Gaussians one after the other are one, its 1/z² the sum of theirs (Dong, Roth, Su 2022, Cor. 2)."""
    mu_squared = sum(count / decimal(one["noise_multiplier"]) ** 2 for one, count in parts)
    exact = 1 / mu_squared
    z = math.sqrt(exact)
    while decimal(z) ** 2 > exact:
        z = math.nextafter(z, 0.0)
    return {"kind": "gaussian", "noise_multiplier": z}

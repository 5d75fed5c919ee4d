"""What goes into a request: bodies of charges, and names as parts of a path."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any, Final, Literal, TypedDict, Unpack
from urllib.parse import quote

from odometer_client.mechanism import Mechanism

AnyMechanism = Mechanism | Mapping[str, Any]
"""A typed mechanism, or its JSON document."""
Charges = AnyMechanism | Sequence[tuple[AnyMechanism, int]]
"""One mechanism, or a list of (mechanism, count) that is charged all or nothing."""
Partitions = Literal["all"] | Sequence[str]
"""The partitions that are read, or "all" of them, later ones too."""
Group = tuple[str, int]
"""The name of runs that belong together, and how many they are: every count is that of one run."""


class Apart(TypedDict, total=False):
    """What else a charge may say, apart from the adjacency."""

    partitions: Partitions | None
    """Of a dataset that composes by partition: the ones that are read, or "all"."""
    principal: str | None
    """On whose behalf; needs a key that may act for it."""


class Under(Apart, total=False):
    """What else a charge may say."""

    adjacency: str | None
    """"add_remove", "replace_one" or "zero_out" as the mechanism's analysis has it; refused when the
    dataset's differs."""


class About(Under, total=False):
    """The same, with what a sweep and a charge of units say in words of their own."""

    units: Sequence[str] | None
    """Of a dataset that composes by unit: whose data it is, 1 to 1000 that one shard keeps."""
    group: Group | None
    """Runs that belong together; every count is that of one run."""


_ABOUT: Final = ("adjacency", "partitions", "units", "group", "principal")


def charge_body(mechanism: Charges, count: int | None, **about: Unpack[About]) -> dict[str, Any]:
    """The body of a charge, a hold or a check, without what was not given."""
    if isinstance(mechanism, Mechanism | Mapping):
        body: dict[str, Any] = {"mechanism": _document(mechanism), "count": 1 if count is None else count}
    elif isinstance(mechanism, str | type) or not isinstance(mechanism, Iterable):
        raise TypeError(f"mechanism is {_instead(mechanism)}")
    elif count is not None:
        raise ValueError("a list says the count of each mechanism itself: leave `count` out")
    else:
        body = {"charges": [_charge(item, place) for place, item in enumerate(mechanism)]}
    return body | about_body(**about)


def about_body(**about: Unpack[About]) -> dict[str, Any]:
    """What a body says beside what runs, without what was not given. Raises TypeError for another keyword."""
    for name in about:
        if name not in _ABOUT:
            near = get_close_matches(name, _ABOUT, n=1)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(_ABOUT)}"
            raise TypeError(f"there is no keyword {name!r} here: {meant}")
    body: dict[str, Any] = {}
    if (adjacency := about.get("adjacency")) is not None:
        body["adjacency"] = adjacency
    if (partitions := about.get("partitions")) is not None:
        body["partitions"] = "all" if partitions == "all" else names("partitions", partitions)
    if (units := about.get("units")) is not None:
        body["units"] = names("units", units)
    if (group := about.get("group")) is not None:
        name, runs = group
        body["group"] = {"name": name, "runs": runs}
    if (principal := about.get("principal")) is not None:
        body["principal"] = principal
    return body


def names(what: str, given: Sequence[str]) -> list[str]:
    """A list of names; one name alone is not spelt out letter by letter."""
    if isinstance(given, str):
        raise TypeError(f"{what} is {given!r}: give a list of names, [{given!r}]")
    return list(given)


def segment(name: str) -> str:
    """A name as one segment of a path, whatever it contains: "", "." and ".." would be another path."""
    if not name:
        return "%00"
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _charge(item: Any, place: int) -> dict[str, Any]:
    """One (mechanism, count) of a list."""
    if isinstance(item, tuple | list) and len(item) == 2:
        mechanism, times = item
        if isinstance(mechanism, Mechanism | Mapping):
            return {"mechanism": _document(mechanism), "count": times}
        raise TypeError(f"charges.{place}: the mechanism is {_instead(mechanism)}")
    raise TypeError(f"charges.{place} is {item!r:.200}: write (mechanism, count)")


def _instead(given: Any) -> str:
    """What was given for a mechanism that is none, and what would work."""
    if isinstance(given, type) and issubclass(given, Mechanism):
        return f"the class {given.__name__}: make one of it, {_made(given)}"
    if isinstance(given, str):
        from odometer_client.mechanisms import BY_KIND  # late: it is large

        known = BY_KIND.get(given.lower())
        example = _made(known) if known is not None else "Gaussian(noise_multiplier=…)"
        return (
            f"{given!r:.80}, a name: its parameters are needed too, {example} of odometer_client.mechanisms "
            'or {"kind": …, …}'
        )
    return (
        f"of type {type(given).__name__}: a class of odometer_client.mechanisms with its parameters, a "
        'document {"kind": …, …} or a list of (mechanism, count) works'
    )


def _made(kind: type[Mechanism]) -> str:
    """How a mechanism is made: its class, with the parameters that it needs."""
    needed = [one.name for one in fields(kind) if one.default is MISSING] or [fields(kind)[0].name]
    return f"{kind.__name__}({', '.join(f'{name}=…' for name in needed)})"


def _document(mechanism: AnyMechanism) -> dict[str, Any]:
    return mechanism.document() if isinstance(mechanism, Mechanism) else dict(mechanism)

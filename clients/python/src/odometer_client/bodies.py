"""What goes into a request: bodies of charges, and names as parts of a path."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict
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


def charge_body(
    mechanism: Charges,
    count: int | None,
    *,
    adjacency: str | None = None,
    partitions: Partitions | None = None,
    units: Sequence[str] | None = None,
    group: Group | None = None,
    principal: str | None = None,
) -> dict[str, Any]:
    """The body of a charge, a hold or a check, without what was not given."""
    if isinstance(mechanism, Mechanism | Mapping):
        body: dict[str, Any] = {"mechanism": _document(mechanism), "count": 1 if count is None else count}
    elif count is not None:
        raise ValueError("a list says the count of each mechanism itself: leave `count` out")
    else:
        body = {"charges": [{"mechanism": _document(one), "count": times} for one, times in mechanism]}
    return body | about_body(
        adjacency=adjacency, partitions=partitions, units=units, group=group, principal=principal
    )


def about_body(
    *,
    adjacency: str | None = None,
    partitions: Partitions | None = None,
    units: Sequence[str] | None = None,
    group: Group | None = None,
    principal: str | None = None,
) -> dict[str, Any]:
    """What a body says beside what runs, without what was not given."""
    body: dict[str, Any] = {}
    if adjacency is not None:
        body["adjacency"] = adjacency
    if partitions is not None:
        body["partitions"] = "all" if partitions == "all" else names("partitions", partitions)
    if units is not None:
        body["units"] = names("units", units)
    if group is not None:
        name, runs = group
        body["group"] = {"name": name, "runs": runs}
    if principal is not None:
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


def _document(mechanism: AnyMechanism) -> dict[str, Any]:
    return mechanism.document() if isinstance(mechanism, Mechanism) else dict(mechanism)

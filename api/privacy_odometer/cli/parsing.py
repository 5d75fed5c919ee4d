"""Mechanisms and budgets as arguments of a command, to and from their JSON documents.

Numbers are used exactly as written. A number that a float would round is refused.
"""

import json
import math
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

import typer

from odometer_accountant.requests.percent import as_share
from odometer_client.wording import parameter_words

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHOLE: Final = re.compile(r"[+-]?\d+")
_DIGITS_MAX: Final = 400
_WHOLE_MAX: Final = 2**53
"""Up to here floats represent every whole number exactly."""
_DURATION: Final = re.compile(r"(\d{1,12})([dhms]?)")
_TOKEN: Final = re.compile(r"^\W*po_|po_[\w-]{16}", re.IGNORECASE)
"""Text that looks like a key's token."""
_SECONDS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1, "": 1}
_CHARGES: Final = (
    'give a mechanism like {"kind": "gaussian", "noise_multiplier": 10}, '
    'or a list like [{"mechanism": {"kind": "gaussian", "noise_multiplier": 10}, "count": 5}, …]'
)
_OPTIONS: Final = {
    "adjacency": "--adjacency",
    "partitions": "--partition or --all-partitions",
    "units": "--unit",
    "group": "--group and --runs",
    "principal": "--principal",
    "expires_in_s": "--expires-in",
}
"""Fields of a charge's request that are options of the command."""
_WITHIN: Final = {"base": "{", "mechanisms": "["}
"""Parameters that contain mechanisms, and the first letter of their JSON."""


def number(text: str) -> float:
    """A number, exactly as written. Raises BadParameter, also for a number that would be rounded."""
    if len(text) > _DIGITS_MAX or not _NUMBER.fullmatch(text):
        raise typer.BadParameter(f"{text[:80]!r} is not a number{as_share(text[:80])}")
    if _WHOLE.fullmatch(text) and (value := int(text)) != 0:
        return value
    kept = float(text)
    if abs(kept) == float("inf") or not _same(kept, text):
        raise typer.BadParameter(f"{text!r} cannot be stored exactly{_near(kept, text)}")
    if kept != 0 and abs(kept) <= _WHOLE_MAX and kept.is_integer():
        return int(kept)  # 6e4 is a whole number where one is required
    return 0 if _WHOLE.fullmatch(text) and not text.startswith("-") else kept


def _near(kept: float, text: str) -> str:
    """The nearest numbers below and above. Which of them is the safe side depends on the parameter."""
    if abs(kept) == float("inf"):
        return ""
    try:
        above = Decimal(text) > Decimal(repr(kept))
    except InvalidOperation:  # nearer to 0 than any float
        above = not text.startswith("-")
    other = math.nextafter(kept, math.inf if above else -math.inf)
    low, high = sorted((kept, other))
    return f": write {low!r} or {high!r}, the nearest numbers that can, whichever counts more loss"


def _same(kept: float, text: str) -> bool:
    try:
        return Decimal(repr(kept)) == Decimal(text)
    except InvalidOperation:  # an exponent of twenty digits: no float has it, except 0
        return not kept and not re.search("[1-9]", re.split("[eE]", text)[0])


def duration_s(text: str | int) -> int:
    """Seconds from `7d`, `12h`, `30m`, `45s` or `3600`. Raises BadParameter."""
    found = _DURATION.fullmatch(str(text))
    if found is None or int(found[1]) < 1:
        raise typer.BadParameter(
            f"{str(text)[:80]!r} is not a duration: write 7d, 12h, 30m, 45s, or whole seconds from 1"
        )
    return int(found[1]) * _SECONDS[found[2]]


def overlap_s(text: str | int) -> int:
    """Seconds as in `duration_s`, or 0. Raises BadParameter."""
    return 0 if str(text) == "0" else duration_s(text)


def identity(text: str) -> str:
    """An id. Raises BadParameter for a key's token, which is neither sent nor printed."""
    if _TOKEN.search(text):
        raise typer.BadParameter(
            "that is a token, not an id: ids begin with k_ or p_; `odometer key list` shows them"
        )
    return text


def mechanism(kind: str, parameters: Iterable[str]) -> dict[str, Any]:
    """The document of `gaussian noise_multiplier=10`, `… base.kind=gaussian base.noise_multiplier=1.1`."""
    words = list(parameters)
    for word in words:
        path, _, value = word.partition("=")
        last = path.rpartition(".")[2]
        if last in _WITHIN and not value.lstrip().startswith(_WITHIN[last]):
            raise typer.BadParameter(_how_within(word, path, value))
    return {"kind": kind, **assignments(words)}


def _how_within(word: str, path: str, value: str) -> str:
    """How to write a mechanism inside another one; `value` was given in its place."""
    if path.endswith("mechanisms"):
        return (
            f"{word!r}: write a list of mechanisms as JSON, {path}='[{{\"kind\": …}}, …]', "
            "or the whole mechanism in --from-json"
        )
    kind = value if value.isidentifier() else "gaussian"
    return (
        f"{word!r}: write {path}.kind={kind} and its parameters likewise, such as "
        f"{path}.noise_multiplier=1.1, or the whole mechanism in --from-json"
    )


def assignments(items: Iterable[str]) -> dict[str, Any]:
    """The document of `a=1 b.c=x`; a point goes one level down. Raises BadParameter."""
    document: dict[str, Any] = {}
    for item in items:
        path, equals, value = item.partition("=")
        *folders, last = path.split(".")
        if not equals or not all([*folders, last]):
            raise typer.BadParameter(f"{item!r}: write name=value, for example noise_multiplier=10")
        place = document
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise typer.BadParameter(f"{item!r}: {folder!r} already has a value")
        if last in place:
            raise typer.BadParameter(f"{item!r}: {path!r} is given twice")
        place[last] = _value(value)
    return document


def budget(text: str) -> dict[str, Any]:
    """The document of `life:approximate:epsilon=3,delta=1e-5`, or of JSON. Raises BadParameter.

    Also `daily:pure:epsilon=1,scope=unit/*,window=day` and `…,reserved=team:0.3,reserved=other:0.2`.
    """
    if text.lstrip().startswith("{"):
        document = read_json(text)
        if isinstance(document, dict):
            return document
    name, _, rest = text.partition(":")
    kind, _, limits = rest.partition(":")
    if not (name and kind and limits):
        raise typer.BadParameter(
            f"{text!r}: write name:kind:limits, like life:approximate:epsilon=3,delta=1e-5"
        )
    return {"name": name, "kind": kind, **budget_parts(limits.split(","))}


def budget_parts(items: Iterable[str]) -> dict[str, Any]:
    """A budget's fields from `epsilon=3`, `scope=team/*`, `window=day`, `reserved=team:0.3`."""
    return assignments(_reserved(item) for item in items)


def _reserved(item: str) -> str:
    """`reserved=team:share` as the path `reserved.team=share`; other items unchanged."""
    name, equals, share = item.partition("=")
    if name != "reserved" or share.startswith("{"):
        return item
    team, colon, part = share.partition(":")
    if not (equals and team and colon and part) or "." in team:
        raise typer.BadParameter(f"{item!r}: write reserved=team:share, for example reserved=research:0.3")
    return f"reserved.{team}={part}"


def budget_text(document: Mapping[str, Any]) -> str:
    """A budget's document as the text that `budget` reads, without its workload."""
    parts = []
    for name, value in document.items():
        if name == "reserved":
            parts += [f"reserved={team}:{share}" for team, share in (value or {}).items()]
        elif name not in ("name", "kind", "workload") and value is not None:
            parts.append(f"{name}={value}")
    return f"{document.get('name')}:{document.get('kind')}:{','.join(parts)}"


def charges(text: str) -> list[tuple[Mapping[str, Any], int]] | dict[str, Any]:
    """The value of `--from-json`: a mechanism's document, or a list of charges. `-` reads standard input.

    Raises BadParameter, also for a field that would not be used.
    """
    document = read_json(sys.stdin.read() if text == "-" else text, f"; {_CHARGES}")
    if isinstance(document, dict) and "charges" in document:
        _refuse_unused(document, {"charges"})
        document = document["charges"]
    elif isinstance(document, dict) and "mechanism" in document:
        document = [document]
    if isinstance(document, dict):
        return document
    if not isinstance(document, list):
        raise typer.BadParameter(_CHARGES)
    for place, item in enumerate(document, 1):
        if not isinstance(item, dict):
            raise typer.BadParameter(f"item {place} is not a charge: {_CHARGES}")
        for name in ("mechanism", "count"):
            if name not in item:
                raise typer.BadParameter(f"item {place} has no {name!r}: {_CHARGES}")
        _refuse_unused(item, {"mechanism", "count"})
    return [(item["mechanism"], item["count"]) for item in document]


def _refuse_unused(document: Mapping[str, Any], used: set[str]) -> None:
    """Raise BadParameter for a field of a request that has to be an option here."""
    for name in document:
        if name not in used:
            option = _OPTIONS.get(name)
            instead = f"give it as {option}" if option else "leave it out"
            fields = " and ".join(repr(field) for field in sorted(used))
            raise typer.BadParameter(f"field {name!r} is not read here, only {fields}: {instead}")


def read_json(text: str, example: str = "") -> Any:
    """Strict JSON with exact numbers. Raises BadParameter, whose text ends with the `example`."""
    try:
        return json.loads(
            text, parse_float=number, parse_constant=_no_constant, object_pairs_hook=_no_duplicates
        )
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not JSON: {error}{example}") from None


def typed(document: Mapping[str, Any]) -> str:
    """A mechanism's document as the arguments of a command, quoted for a shell."""
    return shlex.join([str(document.get("kind")), *parameter_words("", document)])


def _value(text: str) -> Any:
    if _NUMBER.fullmatch(text):
        return number(text)
    if text[:1] in ("[", "{", '"') or text in ("true", "false", "null"):
        return read_json(text)
    parts = text.split(",")
    if len(parts) > 1 and all(map(_NUMBER.fullmatch, parts)):
        return [number(part) for part in parts]
    return text


def _no_constant(name: str) -> NoReturn:
    raise typer.BadParameter(f"{name} is not a number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise typer.BadParameter(f"duplicate key {twice[:80]!r} in a JSON object")
    return document

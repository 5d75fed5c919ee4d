"""What others read of the service is what it was: answers, problems, OpenAPI, ledgers, stores, names."""

import difflib
import json
import math
from typing import Any

import pytest

from odometer_accountant.ledger import blobs
from odometer_accountant.ledger.entry_types import ENTRY_TYPES
from odometer_accountant.ledger.principals import KEY_ENTRIES
from odometer_accountant.writer.rotation import TURN_BLOB
from tests.golden.ledger import opened
from tests.golden.wire import drive, later

KEYS = "keys_format_4.txt"
ROUNDING = 1e-12
"""Relative: so far may the last digits of a receipt's figure move, and only to the safe side."""


def stored(name: str) -> list[str]:
    return (drive.HERE / name).read_text("utf-8").splitlines()


def compare(before: list[str], now: list[str]) -> None:
    changes = list(difflib.unified_diff(before, now, "before", "now", lineterm="", n=0))
    assert not changes, "\n".join(one[:400] for one in changes[:40])


@pytest.mark.parametrize("name", [name for name in drive.FILES if name != "ledger.txt"])
def test_it_is_what_it_was(name: str) -> None:
    """Byte for byte. A change on purpose is written anew: `python -m tests.golden.wire.drive`."""
    compare(stored(name), drive.written(name))


@pytest.mark.parametrize("name", later.FILES)
def test_the_rest_is_what_it_was(name: str) -> None:
    """Byte for byte. A change on purpose is written anew: `python -m tests.golden.wire.later`."""
    compare(stored(name), list(later.FILES[name]()))


def test_the_ledger_is_what_it_was() -> None:
    """Entries, keys and blobs byte for byte; receipts too, but for last digits that are on the safe side."""
    before, now = stored("ledger.txt"), drive.written("ledger.txt")
    same = [
        old if old.startswith("call ") and safe(json.loads(old[5:]), json.loads(new[5:])) else new
        for old, new in zip(before, now, strict=True)
    ]
    compare(before, same)


def safe(before: Any, now: Any, name: str = "") -> bool:
    """Whether two answers are equal, or less is left, and more is used, by no more than `ROUNDING`."""
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        return all(safe(before[key], now[key], key) for key in before)
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return all(map(safe, before, now))
    if name in ("left", "limit", "spent", "used") and isinstance(before, float) and isinstance(now, float):
        side = now <= before if name in ("left", "limit") else now >= before
        return side and math.isclose(before, now, rel_tol=ROUNDING)
    return bool(before == now)


def test_a_figure_on_the_unsafe_side_is_seen() -> None:
    """More left, less used, more than a last digit, another name: none of these is let through."""
    assert safe({"left": 1.0, "used": 0.5}, {"left": 1 - 2e-15, "used": 0.5 + 2e-15})
    for name, value in (("left", 1 + 2e-15), ("limit", 1 + 2e-15), ("used", 1 - 2e-15), ("left", 0.999)):
        assert not safe([{name: 1.0}], [{name: value}])
    assert not safe({"left": 1.0}, {"rest": 1.0})
    assert not safe({"hash": "a"}, {"hash": "b"})


def test_every_type_of_entry_and_blob_is_written() -> None:
    """No hole: all that the code can write is in the files that are compared, byte for byte."""
    found = [*stored("ledger.txt"), *stored("adopted.txt"), *stored("turns.txt"), *opened.lines(KEYS)]
    entries = [line.split(" ", 3) for line in found if line.startswith("entry ")]
    types = {json.loads(body)["type"] for *_, body in entries}
    assert types == {*ENTRY_TYPES, *KEY_ENTRIES}
    names = {value.rstrip("/") for name, value in vars(blobs).items() if name.isupper()}
    assert {line.split(" ")[1].partition("/")[0] for line in found if line.startswith("blob ")} == {
        TURN_BLOB,
        *names,
    }
    config = [json.loads(line.split(" ", 2)[2]) for line in found if line.startswith("blob config {")]
    assert {"amnesty", "closed", "format", "frozen", "opened", "partitions", "reached", "shard"} <= {
        name for one in config for name in one
    }
    keys = {key.split("/")[0] for _, key, *_ in entries if key.startswith("~")}
    streams = {line.split(" ")[1].split("/")[0] for line in found if line.startswith("stream ~")}
    assert (keys, streams) == ({"~settled", "~ended"}, {"~keys", "~units"})

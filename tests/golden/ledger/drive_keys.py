"""Makes the golden stream of keys: every type of its entries, under a fixed clock and fixed secrets.

python -m tests.golden.ledger.drive_keys tests/golden/ledger/keys_format_4.txt
"""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from odometer_accountant.service import api_keys, principal_names
from odometer_accountant.service import tokens as token_module
from odometer_accountant.service.api_keys import STREAM, KeyRing, Role
from odometer_accountant.stores import Store
from odometer_accountant.stores.memory import MemoryStore


class Wall:
    """A clock that moves by a minute with each change."""

    minute = 0

    def __call__(self) -> str:
        return f"2026-12-01T00:{self.minute:02}:00.000000Z"


class Fixed:
    """In place of `secrets`: numbers, the same each time."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def token_hex(self, size: int) -> str:
        return f"{next(self._numbers):0{2 * size}x}"

    def token_urlsafe(self, size: int) -> str:
        return f"{next(self._numbers):0{size}d}"


def run(store: Store) -> dict[str, str]:
    """Everything that can be said of keys and principals. Returns the token of each key."""
    wall, fixed = Wall(), Fixed()
    tokens: dict[str, str] = {}

    def made(found: tuple[api_keys.Identity, str]) -> api_keys.Identity:
        wall.minute += 1
        tokens[found[0].key] = found[1]
        return found[0]

    with (
        mock.patch.object(api_keys, "secrets", fixed),
        mock.patch.object(token_module, "secrets", fixed),
        mock.patch.object(principal_names, "secrets", fixed),
    ):
        ring = KeyRing(store, 0, wall)
        first = ring.create_first()
        who = ring.identify(first)
        if who is None or first is None:
            raise AssertionError("there is a key already")
        tokens[who.key] = first
        ann = made(ring.create(Role.charger, "ann", who.principal, "red", ["carol"]))
        nameless = made(ring.create(Role.reader, None, who.principal))
        bob = ring.create_principal(Role.charger, "Bob B", who.principal)
        one = made(ring.add(bob, who.principal, 3600))
        two = made(ring.rotate(ann.key, who.principal, 120))
        made(ring.rotate(one.key, who.principal, 60, 86_400))
        made(ring.create(Role.admin, "eve", who.principal, expires_in_s=600))
        ring.change_principal(bob, Role.reader, "blue", ["*"], who.principal, '"v1"')
        ring.revoke(nameless.key, who.principal)
        ring.erase_name(ann.principal, who.principal)
        made(ring.recover(who.principal))
        wall.minute = 59
        ring.refresh()  # what has ended by now becomes entries
        assert ring.cached(tokens[two.key]) is not None
    return tokens


def dump(store: Store) -> Iterator[str]:
    """The stream, its entries, the notes."""
    yield f"stream {STREAM}"
    rows = store.entries(STREAM, 0, 1000)
    yield from (f"entry - {row.hash} {row.body.decode('ascii')}" for row in rows)
    noted = [f"{letter}_{number:016x}" for letter in "pn" for number in range(100)]
    for name, note in store.notes(noted).items():
        yield f"note {name} {note.salt} {note.text}"


def main(path: str) -> None:
    """Write the golden file."""
    store = MemoryStore()
    run(store)
    Path(path).write_text("\n".join(dump(store)) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

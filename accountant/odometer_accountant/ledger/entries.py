"""The form of an entry: canonical JSON that names the hash of the entry before it.

Sorted keys, no spaces, no floats; its own hash is SHA-256 of those bytes, which are stored as they are.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from odometer_accountant.errors import LedgerCorrupt, UpgradeNeeded
from odometer_accountant.stores import Head, NewEntry, Row, Store

FORMAT: Final = 3
"""The format of new entries, unless an entry states something that only a later format can."""
LATEST: Final = 4
"""The latest format that this version writes and reads."""
FORMATS: Final = (1, 2, 3, 4)
"""The formats that this version reads."""
MARK: Final = 8
"""Characters of an entry's hash in the id of the hold or session that it opened."""


def canonical(document: Mapping[str, Any]) -> bytes:
    """The bytes that are hashed and stored. Raises TypeError or ValueError for floats and unknown types."""
    _refuse_floats(document)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def _refuse_floats(value: Any) -> None:
    if isinstance(value, float):
        raise TypeError(f"a ledger entry holds no floats, got {value!r}")
    if isinstance(value, Mapping):
        for item in value.values():
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)


def entry_hash(body: bytes) -> str:
    """SHA-256 of an entry's bytes, in hex."""
    return hashlib.sha256(body).hexdigest()


def timestamp(moment: datetime) -> str:
    """UTC with microseconds; such strings sort as the moments do."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def content(row: Row, name: str) -> dict[str, Any]:
    """The parsed entry of a row of stream `name`.

    Raises LedgerCorrupt when its bytes do not have its hash, or it states another number.
    """
    found: Any = None
    if entry_hash(row.body) == row.hash:
        with suppress(ValueError, RecursionError):
            found = json.loads(row.body)
    if not isinstance(found, dict) or found.get("seq") != row.sequence:
        raise LedgerCorrupt(
            f"entry {row.sequence} of {name} was changed: run odometer verify", sequence=row.sequence
        )
    return found


def row_at(store: Store, stream: str, head: Head, number: int) -> Row | None:
    """Entry `number` of a stream that ends with `head`; None for a number beyond its end.

    The next entry, or the head, names it. Where no such entry is stored, the row has no bytes, so that
    `content` reports damage: a lost entry must not look like one that never existed.
    """
    if not 0 < number <= head.sequence:
        return None
    rows = {row.sequence: row for row in store.entries(stream, number - 1, 2)}
    found, following = rows.get(number), rows.get(number + 1)
    if found is not None and number == head.sequence:
        named = found.hash == head.hash
    else:
        named = following is not None and follows(following, found)
    return found if found is not None and named else Row(number, "", b"")


def follows(row: Row, before: Row | None) -> bool:
    """Whether `row` names `before` as the entry before it."""
    # No text of a caller can match: quotes within texts are escaped.
    return before is not None and f'"prev":"{before.hash}"'.encode() in row.body


def contents(rows: Iterable[Row], name: str) -> Iterator[dict[str, Any]]:
    """The parsed entries of neighbouring rows of stream `name`.

    Raises LedgerCorrupt as `content` does, and for an entry that does not name the one before it.
    """
    before: Row | None = None
    for row in rows:
        entry = content(row, name)
        if before is not None and entry.get("prev") != before.hash:
            raise LedgerCorrupt(
                f"entry {row.sequence} of {name} does not follow the one before it: run odometer verify",
                sequence=row.sequence,
            )
        before = row
        yield entry


def check_format(stream: str, version: Any) -> None:
    """Raise UpgradeNeeded for the format of a later version: it is not damage."""
    if isinstance(version, int) and version > LATEST:
        raise UpgradeNeeded(
            f"{stream} has entries of format {version}, this worker reads up to format {LATEST}: upgrade "
            "this worker; nothing was charged"
        )


def says_more(command: str) -> bool:
    """Whether a command, as canonical JSON, states monotone scores: formats up to 3 could not."""
    return '"monotone":true' in command  # no text can match: quotes within texts are escaped


def seal(
    state_head: Head, document: dict[str, Any], key: str | None = None, version: int = FORMAT
) -> tuple[NewEntry, Head]:
    """The entry after `state_head`, with its number, its predecessor's hash and its format.

    `version` is the lowest format that can state `document`.
    """
    sequence = state_head.sequence + 1
    body = canonical({**document, "v": version, "seq": sequence, "prev": state_head.hash})
    digest = entry_hash(body)
    return NewEntry(digest, body, key), Head(sequence, digest)


def entry_id(number: int, digest: str) -> str:
    """The id of a session or hold: the number of the entry that opened it, and the start of its hash.

    A ledger that lost entries and goes on uses their numbers again: the hash tells the lost one apart.
    """
    return f"{number}.{digest[:MARK]}"


def hold_id(shard: int | None, number: int, digest: str) -> str:
    """The id of a hold: its shard where there is one, and its entry."""
    name = entry_id(number, digest)
    return name if shard is None else f"{shard:04x}-{name}"


LARGEST_SAID: Final = 4
"""From this format on, entries state the largest limit of a budget that was in force."""


WINDOWS_REACHED: Final = 4
"""From this format on, open holds and sessions count in every window that they reach."""

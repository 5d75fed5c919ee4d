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
"""What is written, unless an entry says something that only a later format can say."""
LATEST: Final = 4
"""The latest format that this version writes and reads."""
FORMATS: Final = (1, 2, 3, 4)
"""What is read."""
MARK: Final = 8
"""So much of an entry's hash is in the id of what it opened."""


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
    """What an entry of stream `name` says.

    Raises LedgerCorrupt when it is not what was hashed, or is another one than stood there.
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
    """Entry `number` of a stream that ends with `head`; None for a number that is beyond its end.

    It is the entry that the next one, or the head, names. Where none such is stored, what is returned has no
    bytes, so that `content` takes it for damage: an entry that was lost is not one that never was.
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
    """Whether an entry names that one as the entry before it."""
    # No text can be taken for it: quotes within texts are escaped.
    return before is not None and f'"prev":"{before.hash}"'.encode() in row.body


def contents(rows: Iterable[Row], name: str) -> Iterator[dict[str, Any]]:
    """What neighbouring entries of stream `name` say.

    Raises LedgerCorrupt for what `content` finds, and for one that does not name the entry before it.
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
    """Raise UpgradeNeeded for a format that a later version writes: it is not damage, and not understood."""
    if isinstance(version, int) and version > LATEST:
        raise UpgradeNeeded(
            f"{stream} has entries of format {version}, this worker reads up to format {LATEST}: upgrade "
            "this worker; nothing was charged"
        )


def says_more(command: str) -> bool:
    """Whether a command, as canonical JSON, says what formats up to 3 could not: that scores are monotone."""
    return '"monotone":true' in command  # no text can be taken for it: quotes within texts are escaped


def seal(
    state_head: Head, document: dict[str, Any], key: str | None = None, version: int = FORMAT
) -> tuple[NewEntry, Head]:
    """The entry after `state_head`, with its number, its predecessor's hash and its format.

    `version` is the lowest format that can say what `document` says.
    """
    sequence = state_head.sequence + 1
    body = canonical({**document, "v": version, "seq": sequence, "prev": state_head.hash})
    digest = entry_hash(body)
    return NewEntry(digest, body, key), Head(sequence, digest)


def entry_id(number: int, digest: str) -> str:
    """How what an entry opened, a session or a hold, is called: its number and the start of its hash.

    A ledger that lost entries and goes on gives their numbers to others: the hash tells what is lost from
    what has its number now.
    """
    return f"{number}.{digest[:MARK]}"


def hold_id(shard: int | None, number: int, digest: str) -> str:
    """How a hold is called: its shard where there is one, and its entry."""
    name = entry_id(number, digest)
    return name if shard is None else f"{shard:04x}-{name}"


LARGEST_SAID: Final = 4
"""From this format on it is said which limit of a budget was the largest in force."""


WINDOWS_REACHED: Final = 4
"""From this format on what is open counts in every window that it reaches."""

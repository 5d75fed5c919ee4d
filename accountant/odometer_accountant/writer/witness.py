"""A witness outside the store: the ends of ledgers that were seen, so that an older copy is known for one.

A store that is put back as a whole contradicts nothing that stands in it. So each service also writes, every
second, how far each ledger was, into a small file somewhere else. A service that starts reads it: a stream
that is not as far, or goes on otherwise, is frozen, and a person decides with `unfreeze`. The witness may lag
(what was charged in the last second before all was lost is not missed), and is never ahead of the store.
"""

import fcntl
import json
import logging
import os
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from odometer_accountant.errors import LedgerCorrupt, LedgerRolledBack
from odometer_accountant.ledger.snapshot import KnownHead, load_state
from odometer_accountant.stores import EMPTY_HEAD, Head, Store

log = logging.getLogger("odometer.witness")

BYTES_MAX: Final = 1 << 20
"""From this size on the file is written anew, with the last of each stream alone, when it has doubled."""
KEYS: Final = "~keys"
EVERYTHING: Final = "~ledger"
"""All streams of a ledger, where a person decides on them."""
_STREAMS: Final = 128


@dataclass(frozen=True)
class Sighting:
    """The last end of a stream that anybody saw, and the hash of its first entry."""

    first: str
    seen: KnownHead

    def after(self, other: "Sighting | None") -> bool:
        """Whether it says more than another one of the same stream."""
        if other is None or self.first != other.first:
            return True
        mine, theirs = self.seen, other.seen
        return (mine.accepted_loss, mine.head.sequence) > (theirs.accepted_loss, theirs.head.sequence)


class Witness(Protocol):
    """A witness records how far each ledger had got. Safe to call from several processes."""

    def read(self) -> dict[str, Sighting]:
        """By stream, of this ledger. Raises OSError where there is no telling."""
        ...

    def append(self, ends: Mapping[str, Sighting]) -> None:
        """Add what was seen; never in the place of more. Raises OSError."""
        ...

    def accept(self, stream: str, reason: str, time: str) -> None:
        """Forget a stream, by a person's decision, which is kept. Raises OSError."""
        ...

    def compare(self, store: Store) -> dict[str, Sighting]:
        """The streams that the store does not have as they were seen. Raises OdometerError, OSError."""
        ...


class FileWitness:
    """A file of lines of JSON, for any number of ledgers and processes of one machine.

    `ledger` says which one this is: its URL without what is secret. A stream that another one has under
    another name, with the same first entry, is a copy: then the further of the two counts.
    """

    def __init__(self, path: Path, ledger: str) -> None:
        """Make the folder and the file where there are none. Raises OSError where that cannot be."""
        self.path, self.ledger = path, ledger
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o600))
            self._size = path.stat().st_size

    def read(self) -> dict[str, Sighting]:
        return {stream: one for (ledger, stream), one in self._all().items() if ledger == self.ledger}

    def append(self, ends: Mapping[str, Sighting]) -> None:
        if not ends:
            return
        lines = b"".join(_line(self.ledger, stream, one) for stream, one in ends.items())
        with self._locked():
            self._write(lines)
            if self.path.stat().st_size > max(BYTES_MAX, 2 * self._size):
                self._compact()

    def accept(self, stream: str, reason: str, time: str) -> None:
        said = {"ledger": self.ledger, "stream": stream, "accepted": reason, "time": time}
        with self._locked():
            self._write(_json(said))

    def compare(self, store: Store) -> dict[str, Sighting]:
        everything = self._all()
        copies: dict[tuple[str, str], Sighting] = {}
        for (_, stream), one in everything.items():
            if one.after(copies.get((stream, one.first))):
                copies[stream, one.first] = one
        behind = {}
        for (stream, first), one in copies.items():
            mine = everything.get((self.ledger, stream))
            known = mine is not None and mine.first == first
            with suppress(LedgerCorrupt):  # damage is found, and said, by itself
                if (known or first_hash(store, stream) == first) and not holds(store, stream, one):
                    behind[stream] = one
        return behind

    def _all(self) -> dict[tuple[str, str], Sighting]:
        found: dict[tuple[str, str], Sighting] = {}
        for line in self.path.read_bytes().splitlines():
            try:
                said = json.loads(line)
                place = (str(said["ledger"]), str(said["stream"]))
                if "accepted" in said:
                    found = {at: one for at, one in found.items() if not _is_about(*place, at)}
                    continue
                head = Head(int(said["sequence"]), str(said["hash"]))
                one = Sighting(str(said["first"]), KnownHead(head, str(said["amnesty"])))
            except (ValueError, KeyError, TypeError):
                log.warning("a line of the witness %s cannot be read: what it said is not known", self.path)
                continue
            if one.after(found.get(place)):
                found[place] = one
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among the processes that write it. The lock is a file of its own: this one is replaced."""
        with self.path.with_name(self.path.name + ".lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, lines: bytes) -> None:
        with self.path.open("ab") as file:
            if file.tell() and not self._ends_whole():
                file.write(b"\n")  # somebody was killed within a line: it alone is lost
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())

    def _ends_whole(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _compact(self) -> None:
        """The last of each stream alone, and all that a person decided."""
        decided = [line for line in self.path.read_bytes().splitlines(keepends=True) if b'"accepted"' in line]
        kept = [_line(ledger, stream, one) for (ledger, stream), one in self._all().items()]
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        with draft.open("wb") as file:
            file.write(b"".join((*decided, *kept)))
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o600)
        draft.replace(self.path)
        self._size = self.path.stat().st_size


def _line(ledger: str, stream: str, one: Sighting) -> bytes:
    head, accepted_loss = one.seen.head, one.seen.accepted_loss
    return _json(
        {
            "ledger": ledger,
            "stream": stream,
            "first": one.first,
            "sequence": head.sequence,
            "hash": head.hash,
            "amnesty": accepted_loss,
        }
    )


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


def _is_about(ledger: str, stream: str, at: tuple[str, str]) -> bool:
    """Whether a decision on a stream, or on a whole ledger, is about this place."""
    return at[0] == ledger and stream in (EVERYTHING, at[1])


def first_hash(store: Store, stream: str) -> str:
    """The hash of a stream's first entry; "" for an empty stream."""
    rows = store.entries(stream, 0, 1)
    return rows[0].hash if rows else ""


def holds(store: Store, stream: str, one: Sighting) -> bool:
    """Whether the store still has the end that was seen, or an entry says that a person gave it up."""
    head, number = store.load(stream, [])[0], one.seen.head.sequence
    if head == EMPTY_HEAD:
        return False
    rows = store.entries(stream, number - 1, 1) if head.sequence >= number else []
    return [(row.sequence, row.hash) for row in rows] == [(number, one.seen.head.hash)]


def ends(
    store: Store, known: Mapping[str, Sighting], behind: Container[str] = ()
) -> Iterator[tuple[str, Sighting]]:
    """The ends of a store's streams, except those `behind` and those whose end is `known`.

    A process that was killed took its last second with it: what it wrote then is told by the next one, which
    may never come to that stream. One that is damaged is passed over. Raises OdometerError.
    """
    after = ""
    while names := store.streams(after, _STREAMS):
        for stream in names:
            with suppress(LedgerCorrupt):
                told, head = known.get(stream), store.load(stream, [])[0]
                if stream in behind or head == EMPTY_HEAD or (told and told.seen.head == head):
                    continue
                state = None if stream == KEYS else load_state(store, stream)
                yield (
                    stream,
                    Sighting(first_hash(store, stream), KnownHead.of(state) if state else KnownHead(head)),
                )
        after = names[-1]


def refuse_to_start(behind: Mapping[str, Sighting], store: Store, where: str) -> None:
    """Raise LedgerRolledBack where no entry can say what was lost: the keys, or all that there was.

    `where` is how `odometer unfreeze` is told the store and the witness: `--store sqlite:///ledger.sqlite`.
    """
    if not behind:
        return
    if not store.streams("", 1):
        ledgers = _counted(len(behind), "ledger", "ledgers")
        what, stream = f"this store is empty, and the witness saw {ledgers} in it", EVERYTHING
    elif KEYS in behind:
        entries = _counted(behind[KEYS].seen.head.sequence, "entry", "entries")
        what, stream = f"the witness saw {entries} of the API keys, and this store has others", KEYS
    else:
        return
    raise LedgerRolledBack(
        f"{what}: an older copy was put back, or they were lost. Restore the newest copy; or decide to go on "
        f"without what was lost: odometer unfreeze '{stream}' {where} --reason TEXT"
    )


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"

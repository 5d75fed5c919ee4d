"""The form of an exported ledger: one JSON document per line, written by `LineWriter`, read by `Reader`.

    {"format": "privacy-odometer-ledger", "version": 1, "created": "…", "keys": true, "notes": true,
        "datasets": null}                               (null: all; in the file it is one line)
    {"stream": "adult", "sequence": 2, "hash": "…"}     the stream's end, then each of its entries:
    {"entry": 1, "hash": "…", "body": "…"}              the bytes that were hashed; they are ASCII
    {"entry": 2, "hash": "…", "body": "…"}
    {"note": "p_…", "salt": "…", "text": "…"}           after all streams
    {"end": true, "streams": 1, "entries": 2, "notes": 1, "sha256": "…"}    of all bytes before this line

Configuration and totals are not in the file: an import computes them from the entries. The hash
shows that the file is complete; whoever can rewrite the file can also rewrite the hash.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, Final

from odometer_accountant.ledger.findings import Finding

NAME: Final = "privacy-odometer-ledger"
VERSION: Final = 1
KEYS: Final = "~keys"
"""The stream of the API keys."""
PAGE: Final = 128
"""Entries read at once: one entry may have some hundred kB."""
LINE_MAX: Final = 16 << 20
"""Bytes of a line at most."""
Progress = Callable[[int], None]
"""Called with the progress since the last call: entries when writing a file, bytes when reading one."""


class MovingRefused(Exception):
    """A store that cannot be exported or imported into, or a file that is not whole and sound.

    `findings` are the places where the entries contradict themselves.
    """

    def __init__(self, detail: str, findings: Iterable[Finding] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.findings = tuple(findings)


class LineWriter:
    """Writes the lines, and hashes them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, document: dict[str, Any]) -> None:
        line = as_line(document)
        self._hash.update(line)
        self._file.write(line)

    def end(self, streams: int, entries: int, notes: int) -> str:
        """The last line. Returns the hash of those before it."""
        sha256 = self._hash.hexdigest()
        counts = {"streams": streams, "entries": entries, "notes": notes}
        self._file.write(as_line({"end": True, **counts, "sha256": sha256}))
        self._file.flush()
        return sha256


def as_line(document: dict[str, Any]) -> bytes:
    """The document as the bytes of one line."""
    return json.dumps(document, separators=(",", ":")).encode("ascii") + b"\n"


class Reader:
    """Iterates over the documents between the first and the last line.

    Raises MovingRefused for an incomplete file. The fields have the right types; whether the entries are
    consistent is not checked here.
    """

    def __init__(self, file: BinaryIO, progress: Progress | None = None) -> None:
        self.header: dict[str, Any] = {}
        self.sha256 = ""
        """Of the file, once it was read to its end."""
        self.counts = {"streams": 0, "entries": 0, "notes": 0}
        self._file = file
        self._progress = progress or (lambda _: None)
        self._hash = hashlib.sha256()
        self._number = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._header()
        while True:
            line, document = self._next()
            if document.get("end") is True:
                self._end(document)
                return
            self._hash.update(line)
            yield self._known(document)

    def _header(self) -> None:
        line, document = self._next()
        if document.get("format") != NAME:
            raise self._wrong("this is not a file of `odometer export`")
        if document.get("version") != VERSION or isinstance(document["version"], bool):
            raise self._wrong(
                f"the file has version {document.get('version')!r}, and this odometer reads {VERSION}: "
                "take the one that wrote it, or a newer one"
            )
        self._hash.update(line)
        self.header = document

    def _next(self) -> tuple[bytes, dict[str, Any]]:
        line = self._file.readline(LINE_MAX + 1)
        self._number += 1
        self._progress(len(line))
        if not line.endswith(b"\n"):
            if len(line) > LINE_MAX:
                raise self._wrong(f"the line is longer than {LINE_MAX:,} bytes")
            raise self._wrong("the file ends here, without its last line: it was cut off")
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise self._wrong("the line is not a JSON object")
        return line, document

    def _known(self, document: dict[str, Any]) -> dict[str, Any]:
        kind = next(iter(document), None)
        fields, texts, count = _KINDS.get(str(kind), (None, (), ""))
        if fields is None or tuple(document) != fields:
            raise self._wrong("the line has an unknown form")
        for field, value in document.items():
            if field in texts:
                if not (isinstance(value, str) and (field == "text" or value.isascii()) and _utf8(value)):
                    raise self._wrong(f"{field} is not storable text")
            elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise self._wrong(f"{field} is not a whole number of at least 1")
        self.counts[count] += 1
        return document

    def _end(self, document: dict[str, Any]) -> None:
        if self._file.read(1):
            raise self._wrong("the file goes on after its last line")
        if {name: document.get(name) for name in self.counts} != self.counts:
            found = ", ".join(f"{count} {name}" for name, count in self.counts.items())
            raise self._wrong(f"the file holds {found}; its last line says otherwise")
        if document.get("sha256") != self._hash.hexdigest():
            raise self._wrong("the SHA-256 of the file differs: it was changed, or is damaged")
        self.sha256 = self._hash.hexdigest()

    def _wrong(self, what: str) -> MovingRefused:
        return MovingRefused(f"line {self._number}: {what}")


def _utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# First field → (all fields in order, those that are texts, what they count as).
_KINDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...], str]]] = {
    "stream": (("stream", "sequence", "hash"), ("stream", "hash"), "streams"),
    "entry": (("entry", "hash", "body"), ("hash", "body"), "entries"),
    "note": (("note", "salt", "text"), ("note", "salt", "text"), "notes"),
}

"""The names and contents of the Redis keys. All keys of one stream share a hash slot."""

from dataclasses import dataclass
from urllib.parse import quote

_NAMELESS = "%"  # Redis ignores an empty hash tag; quote() never returns a lone %


@dataclass(frozen=True, slots=True)
class StreamKeys:
    """The keys of one stream: six hold its data, `confirmed` is written to wait for replicas."""

    head: bytes
    entries: bytes
    keys: bytes
    blobs: bytes
    names: bytes
    marks: bytes
    confirmed: bytes

    @classmethod
    def of(cls, prefix: str, stream: str) -> "StreamKeys":
        # Percent-encoded: no brace in a name ends the hash tag, and two names never share a key.
        base = f"{prefix}:{{{quote(stream, safe='') or _NAMELESS}}}:".encode()
        return cls(
            base + b"head",
            base + b"entries",
            base + b"keys",
            base + b"blobs",
            base + b"names",
            base + b"marks",
            base + b"confirmed",
        )

    def six(self) -> tuple[bytes, ...]:
        """In the order in which the scripts expect them."""
        return (self.head, self.entries, self.keys, self.blobs, self.names, self.marks)


def streams_key(prefix: str) -> bytes:
    """A sorted set, all scores 0: the names of the streams, including some whose first append failed."""
    return f"{prefix}:streams".encode()


def notes_key(prefix: str) -> bytes:
    """A hash: name → JSON [salt, text]."""
    return f"{prefix}:notes".encode()


def names_between(prefix: str, after: str) -> tuple[bytes, bytes]:
    """The ZRANGEBYLEX bounds for names that start with `prefix` and are > `after`.

    UTF-8 bytes sort like their characters and are never 0xff, so the last byte plus one ends a prefix.
    """
    start = prefix.encode()
    end = b"(" + start[:-1] + bytes((start[-1] + 1,)) if start else b"+"
    return (b"(" + after.encode() if after >= prefix else b"[" + start), end

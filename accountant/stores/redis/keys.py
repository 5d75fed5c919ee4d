"""The names of the keys, and what stands in them. All keys of one stream share a hash slot."""

from dataclasses import dataclass
from urllib.parse import quote

_NAMELESS = "%"  # an empty hash tag is none; quote() never gives a lone %


@dataclass(frozen=True, slots=True)
class StreamKeys:
    """The keys of one stream: four that hold it, and one that is written to wait for replicas."""

    head: bytes
    entries: bytes
    keys: bytes
    blobs: bytes
    confirmed: bytes

    @classmethod
    def of(cls, prefix: str, stream: str) -> "StreamKeys":
        # Percent-encoded, so that no brace of a name ends the hash tag, and no two names give one key.
        base = f"{prefix}:{{{quote(stream, safe='') or _NAMELESS}}}:".encode()
        return cls(base + b"head", base + b"entries", base + b"keys", base + b"blobs", base + b"confirmed")

    def four(self) -> tuple[bytes, ...]:
        """In the order in which the scripts expect them."""
        return (self.head, self.entries, self.keys, self.blobs)


def streams_key(prefix: str) -> bytes:
    """A sorted set, all scores 0: the names of the streams, and of some whose first append failed."""
    return f"{prefix}:streams".encode()


def notes_key(prefix: str) -> bytes:
    """A hash: name → JSON [salt, text]."""
    return f"{prefix}:notes".encode()


def glob_escaped(text: str) -> bytes:
    """`text` for a MATCH pattern, where it stands for itself."""
    return b"".join(
        b"\\" + bytes((byte,)) if byte in b"*?[]^\\-" else bytes((byte,)) for byte in text.encode()
    )

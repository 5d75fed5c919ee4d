"""Loads the Lua scripts of the folder `lua`. Each runs as one step of the server.

The scripts compare and move bytes; they add up nothing. Each starts with `head.lua`, which lists the six keys
of a stream. The callers compare the marks.
"""

from dataclasses import dataclass
from hashlib import sha1
from importlib import resources
from typing import Final

STALE: Final = 0
DONE: Final = 1
KEY_TAKEN: Final = 2
DAMAGED: Final = "PODAMAGED"
"""First word of an error reply for contradictions in the stored data."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script's source, and the SHA-1 under which the server remembers it."""

    source: str
    sha: str


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("lua", f"{name}.lua").read_text("utf-8")


_HEAD: Final = _read("head")


def _script(name: str) -> Script:
    source = f"{_HEAD}\n{_read(name)}"
    # SHA-1 is how Redis names scripts; it protects nothing here.
    return Script(source, sha1(source.encode(), usedforsecurity=False).hexdigest())


APPEND: Final = _script("append")
LOAD: Final = _script("load")
ENTRIES: Final = _script("entries")
FIND: Final = _script("find")
BLOBS: Final = _script("blobs")

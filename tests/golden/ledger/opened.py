"""A golden ledger put back into a store, byte for byte."""

import json
from pathlib import Path
from typing import Any

from odometer_accountant.stores import EMPTY_HEAD, NewEntry, Note, Store, Write

HERE = Path(__file__).parent


def lines(file: str) -> list[str]:
    return (HERE / file).read_text("utf-8").splitlines()


def calls(file: str) -> list[dict[str, Any]]:
    """The calls that the ledger was made of, each with what it said."""
    return [json.loads(line.removeprefix("call ")) for line in lines(file) if line.startswith("call ")]


def restore(file: str, store: Store) -> Store:
    """Write every stream and note of a golden file into an empty store."""
    streams: dict[str, tuple[list[NewEntry], dict[str, bytes]]] = {}
    entries: list[NewEntry] = []
    blobs: dict[str, bytes] = {}
    for line in lines(file):
        what, _, rest = line.partition(" ")
        if what == "stream":
            entries, blobs = streams.setdefault(rest, ([], {}))
        elif what == "entry":
            key, digest, body = rest.split(" ", 2)
            entries.append(NewEntry(digest, body.encode("ascii"), None if key == "-" else key))
        elif what == "blob":
            name, _, blob = rest.partition(" ")
            blobs[name] = blob.encode("ascii")
        elif what == "note":
            name, salt, text = rest.split(" ", 2)
            store.put_note(name, Note(salt, text))
    writes = [Write(stream, EMPTY_HEAD, *found) for stream, found in streams.items()]
    assert all(store.append(writes))
    return store

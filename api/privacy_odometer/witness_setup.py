"""Where the witness of a ledger is kept, and what a service does with what it says."""

import logging
import os
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Final

from odometer_accountant.ledger.adoption import adopt_all
from odometer_accountant.stores import Store
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.writer.witness import FileWitness, Keeper, ends, refuse_to_start
from odometer_accountant.writer.writer import LedgerWriter

log = logging.getLogger("odometer.witness")

NONE: Final = "none"
FOLDER: Final = "privacy-odometer"
FILE: Final = "witness.jsonl"
_SQLITE: Final = "sqlite:///"


def default_witness() -> str:
    """Where programs keep their state (XDG_STATE_HOME); `none` where they cannot."""
    home = os.environ.get("XDG_STATE_HOME", "")
    if not home:
        with suppress(RuntimeError):
            home = str(Path.home() / ".local" / "state")
    return str(Path(home, FOLDER, FILE)) if home else NONE


def ledger_name(url: str) -> str:
    """A store's URL for the witness: a file by its whole path; of a server no login, and no time-outs."""
    if url.startswith(_SQLITE):
        return f"{_SQLITE}{Path(url.removeprefix(_SQLITE)).resolve()}"
    scheme, _, rest = url.partition("://")
    place, _, options = rest.rpartition("@")[2].partition("?")
    prefix = [option for option in options.split("&") if option.startswith("prefix=")]
    return f"{scheme}://{place}{'?' if prefix else ''}{''.join(prefix)}"


def open_witness(setting: str, url: str) -> FileWitness | None:
    """The witness of the store at `url`; None where none is set, and with a warning where none can be."""
    if url.startswith("memory:") or not setting:
        return None
    path = Path(setting)
    if setting == NONE:
        log.warning("no witness is kept: an older copy of the ledger would not be known for one")
        return None
    if url.startswith(_SQLITE) and path.parent.resolve() == Path(url.removeprefix(_SQLITE)).resolve().parent:
        log.warning("the witness %s is beside the ledger: what takes one back takes both", path)
    try:
        return FileWitness(path, ledger_name(url))
    except OSError as error:
        log.warning(
            "NO WITNESS IS KEPT: %s cannot be written (%s). An older copy of the ledger would not be known "
            "for one. Name a file that can be: --witness or ODOMETER_WITNESS",
            path,
            error.strerror or error,
        )
        return None


def begin(store: Store, witness: FileWitness | None) -> None:
    """Before a service starts: what an earlier version wrote is counted again, what is lost is refused.

    Raises LedgerRolledBack, StoreUnavailable.
    """
    adopt_all(store)
    if witness is not None:
        refuse_to_start(witness.compare(store), store, _named(witness))


def is_gone(url: str) -> bool:
    """Whether a store is a file that is not there."""
    return url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).exists()


def refuse_to_make(setting: str, url: str) -> None:
    """Before a store is opened, which makes its file: where one is gone that the witness knows, none is made.

    Raises LedgerRolledBack.
    """
    if not is_gone(url) or setting in ("", NONE) or not Path(setting).exists():
        return
    try:
        witness = FileWitness(Path(setting), ledger_name(url))
    except OSError:  # said by `open_witness`
        return
    nothing = MemoryStore()
    refuse_to_start(witness.compare(nothing), nothing, _named(witness))


def _named(witness: FileWitness) -> str:
    """The options of a command that say which store, and which witness where it is not the usual one."""
    named = f"--store {quote(witness.ledger)}"
    return (
        named if str(witness.path) == default_witness() else f"{named} --witness {quote(str(witness.path))}"
    )


def keep(store: Store, witness: FileWitness | None, writer: LedgerWriter) -> Keeper | None:
    """Freeze what is behind its witness, and tell the witness from now on."""
    if witness is None:
        return None
    behind = witness.compare(store)
    for stream, one in behind.items():
        number = one.seen.head.sequence
        log.critical("%s is behind its witness, which saw entry %d: it is frozen", stream, number)
        writer.testify(stream, one.seen)
    known = witness.read()
    if not known and store.streams("", 1):
        log.warning("%s knows nothing of this ledger yet: it is taken as it is", witness.path)
    elif not known:
        log.info("%s remembers how far this ledger is, from now on", witness.path)
    try:
        witness.append(dict(ends(store, known, behind)))
    except OSError as error:  # the keeper goes on trying, with what it comes upon
        log.warning("the witness cannot be written (%s): an older copy would not be known", error)
    return Keeper(witness, store, writer)

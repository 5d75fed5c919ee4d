"""Opens the witness of a ledger, and compares the ledger with it at the start of a service."""

import logging
import os
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Final

from odometer_accountant.ledger.adoption import adopt_all
from odometer_accountant.stores import Store
from odometer_accountant.stores.memory import MemoryStore
from odometer_accountant.writer.witness import FileWitness, ends, refuse_to_start
from odometer_accountant.writer.witness_reporter import WitnessReporter
from odometer_accountant.writer.writer import LedgerWriter

log = logging.getLogger("odometer.witness")

NONE: Final = "none"
FOLDER: Final = "privacy-odometer"
FILE: Final = "witness.jsonl"
_SQLITE: Final = "sqlite:///"


def default_witness() -> str:
    """The default path, below XDG_STATE_HOME; `none` without a home directory."""
    home = os.environ.get("XDG_STATE_HOME", "")
    if not home:
        with suppress(RuntimeError):
            home = str(Path.home() / ".local" / "state")
    return str(Path(home, FOLDER, FILE)) if home else NONE


def ledger_name(url: str) -> str:
    """The name of a store in the witness: its URL with a file's whole path, without login and time-outs."""
    if url.startswith(_SQLITE):
        return f"{_SQLITE}{Path(url.removeprefix(_SQLITE)).resolve()}"
    scheme, _, rest = url.partition("://")
    place, _, options = rest.rpartition("@")[2].partition("?")
    prefix = [option for option in options.split("&") if option.startswith("prefix=")]
    return f"{scheme}://{place}{'?' if prefix else ''}{''.join(prefix)}"


def open_witness(setting: str, url: str) -> FileWitness | None:
    """The witness of the store at `url`; None if none is set, or (with a warning) if none can be kept."""
    if url.startswith("memory:") or not setting:
        return None
    path = Path(setting)
    if setting == NONE:
        log.warning("no witness is kept: an older copy of the ledger would not be recognised")
        return None
    if url.startswith(_SQLITE) and path.parent.resolve() == Path(url.removeprefix(_SQLITE)).resolve().parent:
        log.warning("the witness %s is beside the ledger: restoring one would restore both", path)
    try:
        return FileWitness(path, ledger_name(url))
    except OSError as error:
        log.warning(
            "NO WITNESS IS KEPT: %s cannot be written (%s). An older copy of the ledger would not be "
            "recognised. Name a writable file with --witness or ODOMETER_WITNESS",
            path,
            error.strerror or error,
        )
        return None


def begin(store: Store, witness: FileWitness | None) -> None:
    """Check a store before a service starts: recount what an earlier version wrote, refuse lost entries.

    Raises LedgerRolledBack, StoreUnavailable.
    """
    adopt_all(store)
    if witness is not None:
        refuse_to_start(witness.compare(store), store, _named(witness))


def is_missing(url: str) -> bool:
    """Whether a store is a file that does not exist."""
    return url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).exists()


def refuse_to_create(setting: str, url: str) -> None:
    """Refuse to create the file of a store that the witness knows. Call it before the store is opened.

    Raises LedgerRolledBack.
    """
    if not is_missing(url) or setting in ("", NONE) or not Path(setting).exists():
        return
    try:
        witness = FileWitness(Path(setting), ledger_name(url))
    except OSError:  # `open_witness` logs it
        return
    nothing = MemoryStore()
    refuse_to_start(witness.compare(nothing), nothing, _named(witness))


def _named(witness: FileWitness) -> str:
    """The options of a command that name the store, and the witness if it is not the default."""
    named = f"--store {quote(witness.ledger)}"
    return (
        named if str(witness.path) == default_witness() else f"{named} --witness {quote(str(witness.path))}"
    )


def keep(store: Store, witness: FileWitness | None, writer: LedgerWriter) -> WitnessReporter | None:
    """Freeze the streams that are behind the witness, and keep the witness from now on."""
    if witness is None:
        return None
    behind = witness.compare(store)
    for stream, one in behind.items():
        number = one.seen.head.sequence
        log.critical("%s is behind its witness, which saw entry %d: it is frozen", stream, number)
        writer.trust(stream, one.seen)
    known = witness.read()
    if not known and store.streams("", 1):
        log.warning("%s has no record of this ledger yet: its present state is trusted", witness.path)
    elif not known:
        log.info("%s records the state of this ledger from now on", witness.path)
    try:
        witness.append(dict(ends(store, known, behind)))
    except OSError as error:  # the reporter tries again, with later entries
        log.warning("the witness cannot be written (%s): an older copy would not be recognised", error)
    return WitnessReporter(witness, store, writer)

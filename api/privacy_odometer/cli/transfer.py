"""`odometer export` and `odometer import`: a ledger to a file, and from the file to an empty store."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, cast

import typer

from privacy_odometer.cli import errors
from privacy_odometer.cli.connection import is_new_file, stored
from privacy_odometer.cli.errors import end
from privacy_odometer.cli.output import plural, printable
from privacy_odometer.cli.progress import progress_bar

if TYPE_CHECKING:
    from odometer_accountant.stores import Store
    from odometer_accountant.transfer.export import Exported
    from odometer_accountant.transfer.format import MovingRefused
    from odometer_accountant.transfer.import_ import Import, Imported

STREAM: Final = "-"
"""The file name that stands for the standard input or output."""
_SHOWN_MAX: Final = 20
UNFINISHED: Final = (
    "The import did not end. The target holds a part of the ledger that cannot be charged: delete its file, "
    "or empty its Redis database. Then import again."
)
StoreUrl = Annotated[
    str,
    typer.Argument(
        metavar="STORE_URL", help="sqlite:///path/to/ledger.sqlite, redis://…", show_default=False
    ),
]


def export(
    url: StoreUrl,
    out: Annotated[
        str, typer.Option("--out", metavar="FILE", help="The file to write; - is the standard output.")
    ] = STREAM,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset",
            metavar="NAME",
            help="Export only this dataset, with its shards. May be repeated. Default: all datasets.",
            show_default=False,
        ),
    ] = None,
    without_keys: Annotated[bool, typer.Option("--without-keys", help="Leave out the API keys.")] = False,
    without_notes: Annotated[
        bool, typer.Option("--without-notes", help="Leave out the names of people.")
    ] = False,
) -> None:
    """Write a ledger to a file: every entry with its hash, for a backup or to move it.

    It only reads, and also works while a service is running. Charges during the export may then be missing,
    and a warning says so (exit status 0). To move a ledger, stop the service first. The file contains hashes
    of API keys and names of people, so only its owner may read it (mode 0600).
    """
    with _errors_explained(), stored(url, reads=True) as store, _written(out) as file:
        made = _export(store, file, dataset, keys=not without_keys, notes=not without_notes)
    _print(f"exported {_counted(made)}")
    if made.moved:
        names = ", ".join(made.moved[:_SHOWN_MAX]) + ("…" if len(made.moved) > _SHOWN_MAX else "")
        _print(
            f"WARNING: entries were added to {names} during the export. Some of them are not in the file. "
            "As a backup the file is fine; to move the ledger, stop every service on it and export again."
        )


def import_(
    url: StoreUrl,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An exported file; - is the standard input.")],
) -> None:
    """Import an exported ledger into an empty store. The whole file is verified first.

    Exit status 1: the file is incomplete or damaged, or the target is not empty. Nothing was written then,
    unless a message says that the import did not end. No service may run on the target during the import.
    """
    from odometer_accountant.transfer.import_ import Import, require_empty

    with _errors_explained():
        if not is_new_file(url):
            with stored(url) as store:
                require_empty(store)
        with _read(file) as source, Import(source) as moving:
            with progress_bar("checking", _size(source), "bytes") as progress:
                moving.check(progress)
            made = _import(url, moving, source)
    _print(f"imported {_counted(made)}")


def _export(
    store: "Store", file: BinaryIO, datasets: list[str] | None, *, keys: bool, notes: bool
) -> "Exported":
    from odometer_accountant.transfer.export import export
    from odometer_accountant.writer.writer import utc_now

    with progress_bar("exporting", None, "entries") as progress:
        return export(store, file, utc_now(), datasets=datasets, keys=keys, notes=notes, progress=progress)


def _import(url: str, moving: "Import", source: BinaryIO) -> "Imported":
    """Write the verified file to the target. If that does not end, say how to clear the target."""
    try:
        with _target(url) as store, progress_bar("importing", _size(source), "bytes") as progress:
            return moving.write(store, progress)
    except KeyboardInterrupt:
        end("interrupted", errors.UNSURE)
    finally:
        if moving.began and not moving.ended:
            _print(UNFINISHED)


@contextmanager
def _target(url: str) -> Iterator["Store"]:
    """The store to import into. A missing SQLite file is created."""
    if not is_new_file(url):
        with stored(url) as store:
            yield store
        return
    from odometer_accountant.errors import OdometerError
    from odometer_accountant.stores import open_store

    try:
        open_store(url).close()
    except OdometerError as error:
        end(error.detail, errors.UNSURE)
    except ValueError as error:
        end(str(error), errors.USAGE)
    with stored(url) as store:
        yield store


@contextmanager
def _errors_explained() -> Iterator[None]:
    """Errors of an export or import end the command, with the list of findings."""
    from odometer_accountant.transfer.format import MovingRefused

    try:
        yield
    except MovingRefused as refused:
        end(_explained(refused), errors.REFUSED)
    except OSError as error:
        named = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError)
        reason = f"{error.filename or 'the file'}: {error.strerror or error}"
        end(reason, errors.USAGE if named else errors.UNSURE)


def _explained(refused: "MovingRefused") -> str:
    lines = [refused.detail, *(f"  {finding}" for finding in refused.findings[:_SHOWN_MAX])]
    more = len(refused.findings) - _SHOWN_MAX
    return "\n".join([*lines, *([f"  and {more} more"] if more > 0 else [])])


@contextmanager
def _written(out: str) -> Iterator[BinaryIO]:
    """A file that only its owner may read. It gets its name when it is complete and on the disk."""
    if out == STREAM:
        yield sys.stdout.buffer
        return
    path = Path(out)
    if path.exists() and not path.is_file():
        end(f"{path} is not a regular file: name a file, or - for the standard output", errors.USAGE)
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)  # mode 0600
    try:
        with os.fdopen(number, "wb", buffering=1 << 20) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    _sync_folder(path.absolute().parent)


def _sync_folder(folder: Path) -> None:
    """Write the folder to the disk too, for the new name. Not every system can open a folder."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def _read(name: str) -> Iterator[BinaryIO]:
    """A file that can be read twice. A pipe is copied to a temporary file without a name."""
    if name != STREAM:
        with Path(name).open("rb") as file:
            if file.seekable():
                yield file
                return
            with _copied(file) as copy:
                yield copy
        return
    with _copied(sys.stdin.buffer) as copy:
        yield copy


@contextmanager
def _copied(file: BinaryIO) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy, 1 << 20)
        copy.seek(0)
        yield cast(BinaryIO, copy)


def _size(file: BinaryIO) -> int:
    """The size of a file in bytes."""
    return os.fstat(file.fileno()).st_size


def _counted(made: "Exported | Imported") -> str:
    counts = (
        plural(made.streams, "stream", "streams"),
        plural(made.entries, "entry", "entries"),
        plural(made.notes, "name", "names"),
    )
    return f"{', '.join(counts)}, SHA-256 {made.sha256}"


def _print(text: str) -> None:
    """Print on the standard error: the file may be the standard output."""
    typer.echo(printable(text), err=True)

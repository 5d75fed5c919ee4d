"""`odometer export` and `odometer import`: a ledger as a file, and back into an empty store of any kind."""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

from privacy_odometer.cli import errors
from privacy_odometer.cli.output import end, plain, plural, stored

if TYPE_CHECKING:
    from odometer_accountant.stores import Store
    from odometer_accountant.transfer.export import Exported
    from odometer_accountant.transfer.format import MovingRefused
    from odometer_accountant.transfer.import_ import Import, Imported

STREAM: Final = "-"
"""In place of a file: the standard input or output."""
_SQLITE: Final = "sqlite:///"
_SHOWN_MAX: Final = 20
UNFINISHED: Final = (
    "The import did not end. What is in the target cannot be charged, and must go: delete its file, or empty "
    "its Redis database. Then import again."
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
        str, typer.Option("--out", metavar="FILE", help="Where to; - is the standard output.")
    ] = STREAM,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset",
            metavar="NAME",
            help="Only this one, with its shards; may be given several times. All unless given.",
            show_default=False,
        ),
    ] = None,
    without_keys: Annotated[bool, typer.Option("--without-keys", help="Leave the API keys out.")] = False,
    without_notes: Annotated[
        bool, typer.Option("--without-notes", help="Leave the names of people out.")
    ] = False,
) -> None:
    """Write a ledger to a file: every entry with its hash, for a backup or to move it.

    Reads only, also while a service is running; then what is charged meanwhile may be missing, and a warning
    says so (exit status 0). To move a ledger, stop the service first. The file holds hashes of API keys and
    names of people: it is made for its owner alone (mode 0600).
    """
    with _refusing(), stored(url, reads=True) as store, _written(out) as file:
        made = _export(store, file, dataset, keys=not without_keys, notes=not without_notes)
    _say(f"exported {_counted(made)}")
    if made.moved:
        names = ", ".join(made.moved[:_SHOWN_MAX]) + ("…" if len(made.moved) > _SHOWN_MAX else "")
        _say(
            f"WARNING: entries were added to {names} meanwhile, and some of them are not in the file. That "
            "will do for a backup; to move the ledger, stop every service on it and export again."
        )


def import_(
    url: StoreUrl,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What export wrote; - is the standard input.")],
) -> None:
    """Put an exported ledger into an empty store, once all of it has been counted again.

    Exit status 1: the file is not whole and sound, or the target is not empty; nothing was written then,
    unless it says that the import did not end. No service may run on the target meanwhile.
    """
    from odometer_accountant.transfer.import_ import Import, require_empty

    with _refusing():
        if not _is_new(url):
            with stored(url) as store:
                require_empty(store)
        with _read(file) as source, Import(source) as moving:
            with _progress("checking", source) as progress:
                moving.check(progress)
            made = _import(url, moving, source)
    _say(f"imported {_counted(made)}")


def _export(
    store: "Store", file: BinaryIO, datasets: list[str] | None, *, keys: bool, notes: bool
) -> "Exported":
    from odometer_accountant.transfer.export import export
    from odometer_accountant.writer.writer import utc_now

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("entries"))
    with _bar("exporting", None, *columns) as progress:
        return export(store, file, utc_now(), datasets=datasets, keys=keys, notes=notes, progress=progress)


def _import(url: str, moving: "Import", source: BinaryIO) -> "Imported":
    """Write what was checked; whatever stops it, the target is said to be of no use."""
    try:
        with _target(url) as store, _progress("importing", source) as progress:
            return moving.write(store, progress)
    except KeyboardInterrupt:
        end("interrupted", errors.UNSURE)
    finally:
        if moving.began and not moving.ended:
            _say(UNFINISHED)


@contextmanager
def _target(url: str) -> Iterator["Store"]:
    """The store to import into, made if it is a file that is not there."""
    if not _is_new(url):
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


def _is_new(url: str) -> bool:
    """Whether `url` names a ledger file that is not there yet."""
    return url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).exists()


@contextmanager
def _refusing() -> Iterator[None]:
    """What cannot be moved ends the command, with the places that are wrong."""
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
    """A file for its owner alone, which gets its name when it is whole and on the disk."""
    if out == STREAM:
        yield sys.stdout.buffer
        return
    path = Path(out)
    if path.exists() and not path.is_file():
        end(f"{path} is no plain file: name one, or - for the standard output", errors.USAGE)
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
    """So that the new name is on the disk too; not every system lets a folder be opened."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


@contextmanager
def _read(name: str) -> Iterator[BinaryIO]:
    """A file that can be read twice: what cannot is copied into a temporary one without a name."""
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


def _progress(what: str, file: BinaryIO) -> Any:
    """A bar over the bytes of a file."""
    return _bar(what, os.fstat(file.fileno()).st_size, BarColumn(), DownloadColumn())


@contextmanager
def _bar(what: str, total: int | None, *columns: ProgressColumn) -> Iterator[Callable[[int], None] | None]:
    """How far it is, on the standard error when that is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Progress(TextColumn(what), *columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda more: progress.advance(task, more)


def _counted(made: "Exported | Imported") -> str:
    counts = (
        plural(made.streams, "stream", "streams"),
        plural(made.entries, "entry", "entries"),
        plural(made.notes, "name", "names"),
    )
    return f"{', '.join(counts)}, SHA-256 {made.sha256}"


def _say(text: str) -> None:
    """On the standard error: the file may be the standard output."""
    typer.echo(plain(text), err=True)

"""What the commands share: options, the connection, how things are said, exit statuses."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from privacy_odometer.cli import errors

if TYPE_CHECKING:
    from odometer_accountant.stores import Store
    from odometer_client import Client

_SQLITE: Final = "sqlite:///"

# Names come from users: never read as markup.
out = Console(markup=False, highlight=False, emoji=False)


def fit_terminal() -> None:
    """Print as wide as the terminal is now, or as COLUMNS says: each command asks anew."""
    out.width = shutil.get_terminal_size().columns


class Format(StrEnum):
    """How a result is printed."""

    text = "text"
    json = "json"


Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="ODOMETER_URL",
        metavar="URL",
        help="The service, or sqlite:///path/to/ledger.sqlite (redis://host) for a ledger without one.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="ODOMETER_KEY",
        metavar="KEY",
        help="API key. Better in the environment: other users can see the options of a running command.",
        show_default=False,
    ),
]
Output = Annotated[Format, typer.Option("--format", metavar="FORMAT", help="text or json.")]


@contextmanager
def connected(url: str, key: str | None, *, create: bool = False) -> Iterator["Client"]:
    """A client; whatever it raises ends the command, in plain words and with its exit status.

    `create`: make the ledger file that `url` names when there is none.
    """
    from odometer_client import Client, OdometerError
    from odometer_client.errors import Unauthenticated

    if not create:
        require_file(url)
    try:
        with Client(url, key) as client:
            yield client
    except Unauthenticated as error:
        end(errors.key_not_taken(url, given=key is not None), errors.status(error))
    except OdometerError as error:
        end(errors.explain(error), errors.status(error))
    except (ValueError, ImportError) as error:  # a URL that is none, numbers that JSON cannot hold
        end(str(error), errors.USAGE)


@contextmanager
def stored(url: str, *, reads: bool = False) -> Iterator["Store"]:
    """The store at `url`, which must be there; faults end the command in plain words.

    `reads`: nothing is written, so that a server which may lose what it acknowledged can be looked at and
    saved; it is warned of.
    """
    from odometer_accountant.errors import LedgerCorrupt, OdometerError
    from odometer_accountant.stores import open_store

    if url.startswith("memory:"):
        end(
            "memory:// is lost with the process that opened it: name a sqlite:///… or redis://… store",
            errors.USAGE,
        )
    require_file(url)
    try:
        store = open_store(url, allow_volatile=reads)
        try:
            yield store
        finally:
            store.close()
    except LedgerCorrupt as error:
        end(f"{error.detail}\nThe ledger is damaged: restore a backup; release nothing.", errors.REFUSED)
    except OdometerError as error:
        end(error.detail, errors.REFUSED if error.status < 500 else errors.UNSURE)
    except ValueError as error:
        end(str(error), errors.USAGE)


def require_file(url: str) -> None:
    """End the command when `url` names a ledger file that is not there: opening it would make one."""
    if url.startswith(_SQLITE):
        path = Path(url.removeprefix(_SQLITE))
        if not path.exists():
            end(f"there is no ledger at {path.absolute()}", errors.USAGE)


def shown_store(url: str) -> str:
    """A store's URL for people and logs: a file by its whole path, and no login."""
    if url.startswith(_SQLITE):
        return f"{_SQLITE}{Path(url.removeprefix(_SQLITE)).absolute()}"
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def is_store(url: str) -> bool:
    """Whether `url` names a ledger rather than a service."""
    return not url.lower().startswith(("http://", "https://"))


def end(text: str, status: int) -> NoReturn:
    """Say why on stderr and end with `status`."""
    print(f"odometer: {plain(text)}", file=sys.stderr)
    raise typer.Exit(status)


def indented(text: str, by: int = 2, style: str = "") -> None:
    """Print a line; if it has to be broken, every part of it stands `by` columns in."""
    out.print(Padding(Text(text, style), (0, 0, 0, by), expand=False))


def plural(count: int, one: str, many: str) -> str:
    """A number and what is counted."""
    return f"{count:,} {one if count == 1 else many}"


def plain(text: str) -> str:
    """Without control characters: what a damaged ledger holds must not steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


def print_json(document: Any) -> None:
    """A document for programs."""
    print(json.dumps(document, ensure_ascii=False, indent=2, default=dict))

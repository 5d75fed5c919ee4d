"""The service or the ledger that a command works on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from privacy_odometer.cli import errors
from privacy_odometer.cli.errors import end

if TYPE_CHECKING:
    from odometer_accountant.stores import Store
    from odometer_client import Client

_SQLITE: Final = "sqlite:///"


@contextmanager
def connected(url: str, key: str | None, *, create: bool = False) -> Iterator["Client"]:
    """A client of a service or of a ledger. Its errors end the command with a text and an exit status.

    `create`: create the ledger file that `url` names if there is none.
    """
    from odometer_client import Client, OdometerError
    from odometer_client.errors import Unauthenticated

    if not create:
        require_file(url)
    try:
        with Client(url, key) as client:
            yield client
    except Unauthenticated as error:
        text = errors.key_needed(f"the service at {shown_store(url)}", given=key is not None)
        end(text, errors.status(error))
    except OdometerError as error:
        end(errors.explain(error), errors.status(error))
    except (ValueError, ImportError) as error:  # an invalid URL, or a number that JSON cannot hold
        end(str(error), errors.USAGE)


@contextmanager
def stored(url: str, *, reads: bool = False) -> Iterator["Store"]:
    """The store at `url`, which must exist. Its errors end the command with a text and an exit status.

    `reads`: the command writes nothing. A server that may lose acknowledged writes is then accepted with a
    warning, so that its ledger can be verified and exported.
    """
    from odometer_accountant.errors import LedgerCorrupt, OdometerError
    from odometer_accountant.stores import open_store

    if url.startswith("memory:"):
        end(
            "a memory:// ledger ends with the process that opened it: name a sqlite:///… or redis://… store",
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
        end(f"{error.detail}\nThe ledger is damaged. Release nothing, and restore a backup.", errors.REFUSED)
    except OdometerError as error:
        end(error.detail, errors.REFUSED if error.status < 500 else errors.UNSURE)
    except ValueError as error:
        end(str(error), errors.USAGE)


def require_file(url: str) -> None:
    """End the command if `url` names a ledger file that does not exist. (Opening would create it.)"""
    if is_new_file(url):
        end(f"there is no ledger at {ledger_path(url).absolute()}", errors.USAGE)


def is_new_file(url: str) -> bool:
    """Whether `url` names a ledger file that does not exist yet."""
    return url.startswith(_SQLITE) and not ledger_path(url).exists()


def ledger_path(url: str) -> Path:
    """The path in a `sqlite:///` URL."""
    return Path(url.removeprefix(_SQLITE))


def shown_store(url: str) -> str:
    """A URL for people and logs: a file by its whole path, and a server without its login."""
    if url.startswith(_SQLITE):
        return f"{_SQLITE}{ledger_path(url).absolute()}"
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def is_store(url: str) -> bool:
    """Whether `url` names a ledger and not a service."""
    return not url.lower().startswith(("http://", "https://"))

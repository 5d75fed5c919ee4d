"""Printing for the commands: a console per command, short phrases, JSON."""

import json
import shutil
from contextvars import ContextVar
from typing import Any, Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

_CONSOLE: Final[ContextVar[Console]] = ContextVar("console")


def new_console() -> None:
    """Give the command that starts now a console as wide as its terminal, or as COLUMNS says."""
    # Names come from users: never read as markup.
    console_ = Console(width=shutil.get_terminal_size().columns, markup=False, highlight=False, emoji=False)
    _CONSOLE.set(console_)


def console() -> Console:
    """The console of the running command, on the standard output."""
    if _CONSOLE.get(None) is None:
        new_console()
    return _CONSOLE.get()


def print_indented(text: str, by: int = 2, style: str = "") -> None:
    """Print a text `by` columns in; the lines of a text that is too long for one are indented alike."""
    console().print(Padding(Text(text, style), (0, 0, 0, by), expand=False))


def print_json(document: Any) -> None:
    """Print a document for programs."""
    print(json.dumps(document, ensure_ascii=False, indent=2, default=dict))


def plural(count: int, one: str, many: str) -> str:
    """A number with the word for one or for many: `1 entry`, `1,234 entries`."""
    return f"{count:,} {one if count == 1 else many}"


def printable(text: str) -> str:
    """The text without control characters, so that a damaged ledger cannot steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)

"""Free text that people read beside numbers they trust: one line, and nothing in it that cannot be seen."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

_KINDS: Final = {
    "Cc": "a control character",
    "Cf": "a mark that cannot be seen",
    "Cs": "half of a surrogate pair",
    "Co": "a character of private use",
    "Cn": f"a character that Unicode {unicodedata.unidata_version} has not assigned",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
}
"""By general category: what is refused."""
_IGNORABLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""What Unicode calls default ignorable: letters and marks of no width too; and the empty Braille pattern."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def fault(text: str) -> str | None:
    """Why a text is no plain line: the character and its place, counted from 1. None for one that is."""
    for place, character in enumerate(text, start=1):
        kind = _KINDS.get(unicodedata.category(character))
        if kind is None and _IGNORABLE.match(character):
            kind = _KINDS["Cf"]
        if kind is not None:
            name = unicodedata.name(character, "")
            told = f"U+{ord(character):04X}{f' {name}' if name else ''}"
            return f"must be one line that can be seen, and character {place} is {told}, {kind}: leave it out"
    return None if text.strip() else "has nothing in it that can be seen"


def shown(text: str) -> str:
    """A text from outside as it may be repeated in an error: what cannot be seen is written as an escape."""
    if text.isprintable() and not _IGNORABLE.search(text):
        return text
    return "".join(
        character if fault(f"{character}.") is None else ascii(character)[1:-1] for character in text
    )


def surrogate(document: Any, place: tuple[str | int, ...] = ()) -> tuple[tuple[str | int, ...], str] | None:
    """Finds half of a surrogate pair in a JSON document: its path and the text; None when there is none.

    No such text can be written as UTF-8, so none can be stored.
    """
    if isinstance(document, str):
        return (place, document) if _SURROGATE.search(document) else None
    if isinstance(document, Mapping):
        for name, item in document.items():
            found = surrogate(str(name), place) or surrogate(item, (*place, name))
            if found:
                return found
    elif isinstance(document, list | tuple):
        for index, item in enumerate(document):
            found = surrogate(item, (*place, index))
            if found:
                return found
    return None

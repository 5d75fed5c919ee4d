"""What a name that does not exist was meant to be: the nearest of those that do, or all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel, TypeAdapter

from odometer_accountant.requests.aliases import ALIASES, MEANS

_COMPARED: Final = 100
"""So many characters of a name are compared: comparing takes the square of them."""
_NEAR: Final = 0.8
"""How alike a misspelt word and the right one are, of 1."""


def instead(name: str, names: Iterable[str]) -> str:
    """`did you mean …?`, or, when none is near, which names there are. Small and large letters are alike.

    A name of the field's own (`sigma`, `dpsgd`) comes before one that is spelt nearly so, with what is meant.
    """
    known = {each.casefold(): each for each in names}
    near = get_close_matches(name[:_COMPARED].casefold(), known, n=1)
    return _told(name, known, near)


def kind_instead(name: str, kinds: Iterable[str]) -> str:
    """As `instead`, of kinds: of those that are spelt nearly so only one that is misspelt is told.

    A name with another word in it stands for something else, which may cost more: `gaussian_svt` is no
    Gaussian.
    """
    known = {each.casefold(): each for each in kinds}
    words = name[:_COMPARED].casefold().split("_")
    return _told(name, known, [kind for kind in known if _misspelt(words, kind.split("_"))])


def near(name: str, names: Iterable[str]) -> str | None:
    """The name that is spelt nearly so, None when there is none."""
    known = {_plain(each): each for each in names}
    found = get_close_matches(_plain(name[:_COMPARED]), known, n=1, cutoff=_NEAR)
    return known[found[0]] if found else None


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_").replace(" ", "_")


def _told(name: str, known: Mapping[str, str], near: Sequence[str]) -> str:
    for meant in ALIASES.get(name.casefold() if len(name) <= _COMPARED else "", ()):
        if meant in known:
            said = f" ({MEANS[meant]})" if meant in MEANS else ""
            return f"did you mean {known[meant]}{said}?"
    if near:
        return f"did you mean {known[near[0]]}?"
    return f"there are {', '.join(sorted(known.values()))}" if known else "there are none"


def _misspelt(words: Sequence[str], kind: Sequence[str]) -> bool:
    """Whether each word of a name is nearly the word of a kind in its place."""
    if len(words) != len(kind):
        return False
    return all(map(_alike, words, kind))


def _alike(word: str, right: str) -> bool:
    swapped = sorted(word) == sorted(right)  # zcpd is zcdp; tcdp, another notion, is not
    return swapped or SequenceMatcher(None, word, right).ratio() >= _NEAR


def fields_at(kind: Any, location: Sequence[int | str]) -> set[str]:
    """The fields of the object at `location` (as pydantic says it of errors) in a document of type `kind`."""
    kinds = list(_one_of(kind))
    for part in location:
        named = [one for one in kinds if _called(one, part)] if len(kinds) > 1 else []
        # The name of one possibility of several, which the document itself does not have; or a step down.
        kinds = named or [below for one in kinds for below in _below(one, part)] or kinds
    return {name for one in kinds if _is_model(one) for name in one.model_fields}


def _one_of(kind: Any) -> Iterator[Any]:
    """The possibilities that a type is made of."""
    if isinstance(kind, TypeAdapter):
        yield from _one_of(kind._type)
    elif get_origin(kind) is Annotated:
        yield from _one_of(get_args(kind)[0])
    elif get_args(kind) and get_origin(kind) not in (tuple, list, dict):
        for each in get_args(kind):
            yield from _one_of(each)
    else:
        yield kind


def _called(kind: Any, name: int | str) -> bool:
    return _is_model(kind) and "kind" in kind.model_fields and kind.model_fields["kind"].default == name


def _below(kind: Any, part: int | str) -> Iterator[Any]:
    if _is_model(kind) and part in kind.model_fields:
        yield from _one_of(kind.model_fields[part].annotation)
    elif isinstance(part, int) and get_origin(kind) in (tuple, list):
        yield from _one_of(get_args(kind)[0])


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)

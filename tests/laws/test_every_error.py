"""Every error of the registry: said once, in the tree, and a problem body of the promised shape."""

import json
import re
from collections import Counter

import pytest

from odometer_accountant import errors
from odometer_accountant.errors import OdometerError

KINDS = errors.registry()
BASES = (errors.OdometerError, errors.Unsure)


def family(kind: type[OdometerError]) -> list[type[OdometerError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in family(child))]


def test_codes_are_unique() -> None:
    """The registry loses nobody to another's code."""
    concrete = [kind for kind in family(OdometerError) if kind not in BASES]
    assert [code for code, times in Counter(kind.code for kind in concrete).items() if times > 1] == []
    assert len(KINDS) == len(concrete)


def test_the_tree_lists_all_with_their_status() -> None:
    """In the module's docstring: every class, each before the status that it has."""
    tree = str(errors.__doc__).split("The client's")[0]
    words = re.findall(r"[A-Z][A-Za-z]+|\b\d{3}\b", tree.split("OdometerError", 1)[1])
    statuses = {}
    for place, word in enumerate(words):
        if not word.isdigit():
            statuses[word] = int(next(later for later in words[place:] if later.isdigit()))
    assert statuses == {kind.__name__: kind.status for kind in KINDS.values()}


@pytest.mark.parametrize("code", KINDS)
def test_its_facts_are_stated(code: str) -> None:
    """A slug, a title, a status of an error, and a docstring for the reference."""
    kind = KINDS[code]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert code == kind.code
    assert kind.title
    assert 400 <= kind.status <= 599
    assert kind.__doc__
    assert kind.retryable is False or kind.status == 429 or kind.status >= 500


@pytest.mark.parametrize("code", KINDS)
def test_its_problem_body(code: str) -> None:
    """RFC 9457 members, whether to retry, and the error's own values; JSON as it stands."""
    error = KINDS[code]("what was wrong, and what works", budget="b", limit=1.5)
    assert json.loads(json.dumps(error.problem())) == {
        "type": f"/problems/{code}",
        "title": error.title,
        "status": error.status,
        "detail": "what was wrong, and what works",
        "retryable": error.retryable,
        "budget": "b",
        "limit": 1.5,
    }
    assert str(error) == error.detail


def test_what_the_ledger_is_unsure_of_is_unavailable() -> None:
    """Fail closed: every such answer is a 503."""
    assert {kind.status for kind in family(errors.Unsure)} == {503}

"""What others read of the service is what it was: answers, problems, OpenAPI, ledgers, stores, names."""

import difflib

import pytest

from tests.golden.wire.drive import FILES, HERE, written


@pytest.mark.parametrize("name", FILES)
def test_it_is_what_it_was(name: str) -> None:
    """Byte for byte. A change on purpose is written anew: `python -m tests.golden.wire.drive`."""
    before, now = (HERE / name).read_text("utf-8").splitlines(), written(name)
    changes = list(difflib.unified_diff(before, now, "before", "now", lineterm="", n=0))
    assert not changes, "\n".join(one[:400] for one in changes[:40])

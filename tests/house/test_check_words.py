"""What `tools/check_words.py` finds and lets pass."""

import runpy
from pathlib import Path

import pytest

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "check_words.py"))


# In pieces, so that this file passes the check that it tests.
@pytest.mark.parametrize(
    "word", ["/" + "home/ann", "/" + "work/main", "py" + "pi.org", "cdn." + "jsdelivr" + ".net"]
)
def test_a_place_of_one_machine_is_found_with_its_line(word: str) -> None:
    """File, line and word are named."""
    found = TOOL["findings"](Path("a.txt"), f"fine\nsee {word}\n")
    assert len(found) == 1
    assert found[0].startswith("a.txt:2: ")


@pytest.mark.parametrize(
    "text", ["docs/work/flow", "the /v1/homes route", "our work/home balance", "/usr/bin/chromium"]
)
def test_other_words_pass(text: str) -> None:
    """Paths of routes, of the repository and of every Debian are not of one machine."""
    assert TOOL["findings"](Path("a.txt"), text) == []

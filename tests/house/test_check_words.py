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


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the teller decides", "teller"),
        ("an amnesty forgives", "amnesty"),
        ("a number is none", "is none"),
        ("the key 'a' stands twice", "stands twice"),
        ("Of a hold: its expiry", "Of a hold: "),
        ("What is to be said of it", "What is to be said"),
        ("Noise is not its business", "Noise is not its business"),
    ],
)
def test_an_unclear_phrase_is_found_with_its_plain_form(text: str, found: str) -> None:
    """File, line, phrase and what to write are named."""
    (line,) = TOOL["phrases"](Path("docs/a.md"), f"fine\n{text}\n")
    assert line.startswith(f"docs/a.md:2: {found} → ")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.md", "the metric `odometer_teller_alive`"),
        ("a.md", "the stored key `amnesty`"),
        ("a.md", "None where there is none"),
        ("a.py", "lexicon = state.lexicon"),
        ("a.py", 'LEXICON_BLOB = "lexicon"'),
        ("tests/golden/a.py", "# the teller"),
    ],
)
def test_stored_names_identifiers_and_golden_files_pass(path: str, text: str) -> None:
    """Names that never change may stay in the text, and only the prose of Python files is read."""
    assert TOOL["phrases"](Path(path), text) == []


def test_a_docstring_that_begins_with_a_question_word_is_found() -> None:
    """A docstring says what the thing is. A docstring of a test may begin with anything."""
    text = 'def price():\n    """What a charge costs."""\n'
    assert TOOL["phrases"](Path("api/a.py"), text) == [
        "api/a.py:1: What a charge costs. → say what it is, or what it does"
    ]
    assert TOOL["phrases"](Path("tests/a.py"), text) == []
    assert TOOL["phrases"](Path("api/a.py"), text.replace("What a charge costs", "The price")) == []


def test_comments_and_strings_of_python_are_read() -> None:
    """An error text or a comment is prose; the code between is not."""
    found = TOOL["phrases"](Path("a.py"), 'teller = 1  # the teller\nf("the teller")\n')
    assert [line.split(": ")[0] for line in found] == ["a.py:1", "a.py:2"]


def test_a_folder_with_more_phrases_than_are_left_fails() -> None:
    """The number of old phrases may only become smaller; a folder without a number has none."""
    left = TOOL["LEFT"]["docs"]
    lines = [f"docs/a.md:{number}: teller → the writer" for number in range(left)]
    assert TOOL["too_many"](lines) == []
    more = [*lines, "docs/b.md:1: teller → the writer"]
    assert TOOL["too_many"](more) == more
    assert TOOL["too_many"](["README.md:1: teller → the writer"]) == ["README.md:1: teller → the writer"]

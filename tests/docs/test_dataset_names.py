"""A name of a dataset cannot be used twice, so that every page may be followed after every other."""

import re
from collections import Counter

import pages

OPENED_BY_COMMAND = re.compile(r"\bdataset create ([\w-]+)")
OPENED_IN_PYTHON = re.compile(r"\.create_dataset\(\s*[\"']([\w-]+)[\"']")
OPENED = re.compile(r"\bdataset create\b|\.create_dataset\(")
PAGES = [pages.ROOT / "README.md", *sorted((pages.ROOT / "docs").rglob("*.md"))]


def opened(text: str) -> list[str]:
    """The names of the datasets that a block opens."""
    return OPENED_BY_COMMAND.findall(text) + OPENED_IN_PYTHON.findall(text)


def test_no_two_blocks_of_the_pages_open_a_dataset_of_the_same_name() -> None:
    found = [
        (name, str(page.relative_to(pages.ROOT)))
        for page in PAGES
        for block in pages.blocks(page)
        for name in opened(block.text)
    ]
    assert len(found) > len(list((pages.ROOT / "docs" / "recipes").glob("*.md")))
    often = {name for name, times in Counter(name for name, _ in found).items() if times > 1}
    assert not [(name, page) for name, page in found if name in often]


def test_every_name_is_written_where_the_dataset_is_opened() -> None:
    for page in PAGES:
        for block in pages.blocks(page):
            assert len(OPENED.findall(block.text)) == len(opened(block.text)), f"{page}:\n{block.text}"

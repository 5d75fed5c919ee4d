"""The blocks of the docs' pages run as they are written, and show what they say: one test per section.

All share one service. A section that uses a dataset of an earlier section runs that one first, unless it ran.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pages
import pytest

from odometer_client.testing import serve

PAGES = ("start.md", "concepts.md", "recipes/charging.md", "recipes/dp_events.md")
SECTIONS = [
    pytest.param(page, place, id=f"{page}: {section.title}")
    for page in PAGES
    for place, section in enumerate(pages.sections(pages.ROOT / "docs" / page))
    if section.blocks
]


@dataclass
class Reader:
    """Someone who follows a page, on a service whose ledger was empty."""

    page: Path
    environment: dict[str, str]
    folder: Path
    done: set[int] = field(default_factory=set)

    def follow(self, place: int) -> None:
        """Run a section once, after those that it needs, and compare what is shown."""
        if place in self.done:
            return
        self.done.add(place)
        section = pages.sections(self.page)[place]
        for earlier in section.needs:
            self.follow(earlier)
        for block in section.blocks:
            output = pages.run(block, self.environment, self.folder)
            shown = block.shown
            assert shown is None or pages.shows(shown, output), f"shown:\n{shown}\nreally:\n{output}"


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Reader]]:
    """A reader for each page, made when the page is first asked for; all share one service."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "data").mkdir()  # `odometer serve` makes that of its own default alone
    with serve(f"sqlite:///{folder / 'data' / 'ledger.sqlite'}") as service:
        yield {
            page: Reader(
                pages.ROOT / "docs" / page,
                pages.environment_of(service.url, str(service.admin_key)),
                folder,
            )
            for page in PAGES
        }


@pytest.mark.parametrize(("page", "place"), SECTIONS)
def test_a_section_runs_and_shows_what_it_says(page: str, place: int, readers: dict[str, Reader]) -> None:
    readers[page].follow(place)


def test_every_page_has_a_block_that_runs() -> None:
    """A page whose blocks are no longer recognised would pass without running."""
    assert all(pages.blocks(pages.ROOT / "docs" / page) for page in PAGES)


def test_what_is_shown_must_stand_in_the_output() -> None:
    output = "one\ntwo\nthree\nfour\n"
    assert pages.shows("one\n…\nf…r", output)
    assert not pages.shows("one\nthree", output)
    assert not pages.shows("tw", output)

"""The blocks of the docs' pages run as they are written, and show what they say."""

from pathlib import Path

import pages
import pytest

from odometer_client.testing import serve


@pytest.mark.parametrize("page", ["start.md", "concepts.md", "recipes/charging.md", "recipes/dp_events.md"])
def test_a_page_runs_and_shows_what_it_says(page: str, tmp_path: Path) -> None:
    found = pages.blocks(pages.ROOT / "docs" / page)
    assert found
    (tmp_path / "data").mkdir()  # `odometer serve` makes that of its own default alone
    with serve(f"sqlite:///{tmp_path / 'data' / 'ledger.sqlite'}") as service:
        environment = pages.environment_of(service.url, str(service.admin_key))
        for block in found:
            output = pages.run(block, environment, tmp_path)
            if block.shown is not None:
                assert pages.shows(block.shown, output), f"shown:\n{block.shown}\nreally:\n{output}"


def test_what_is_shown_must_stand_in_the_output() -> None:
    output = "one\ntwo\nthree\nfour\n"
    assert pages.shows("one\n…\nf…r", output)
    assert not pages.shows("one\nthree", output)
    assert not pages.shows("tw", output)

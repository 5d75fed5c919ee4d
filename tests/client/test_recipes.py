"""The recipes that need nothing but Python run as they are written, and show what they say."""

from pathlib import Path

import pages
import pytest

from odometer_client.testing import Service


@pytest.mark.parametrize("recipe", ["sweeps.md", "local.md", "partitions.md", "pate.md"])
def test_a_recipe_runs_and_shows_what_it_says(recipe: str, running: Service, tmp_path: Path) -> None:
    found = pages.blocks(pages.ROOT / "docs" / "recipes" / recipe)
    assert found
    environment = pages.environment_of(running.url, str(running.admin_key))
    for block in found:
        output = pages.run(block, environment, tmp_path)
        if block.shown is not None:
            assert pages.shows(block.shown, output), f"shown:\n{block.shown}\nreally:\n{output}"

"""The recipes that need nothing but Python run as they are written, and show what they say."""

from pathlib import Path

import pages
import pytest

from odometer_client.testing import Service

RECIPES = [
    *("sweeps.md", "local.md", "partitions.md", "pate.md", "fixed_batches.md", "shuffled_epochs.md"),
    *("groups.md", "shuffle.md", "adaptive_clipping.md"),
]


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_and_shows_what_it_says(recipe: str, running: Service, tmp_path: Path) -> None:
    found = pages.blocks(pages.ROOT / "docs" / "recipes" / recipe)
    assert found
    environment = pages.environment_of(running.url, str(running.admin_key))
    for block in found:
        output = pages.run(block, environment, tmp_path)
        if block.shown is not None:
            assert pages.shows(block.shown, output), f"shown:\n{block.shown}\nreally:\n{output}"

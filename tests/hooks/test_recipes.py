"""The commands and the code of the recipes run, against a real service, and show what they say."""

from pathlib import Path
from typing import Any

import pages
import pytest

from odometer_client.testing import Service


@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("recipe", ["opacus.md", "opendp.md", "sparse_vector.md", "confident_gnmax.md"])
def test_a_recipe_runs_and_shows_what_it_says(
    recipe: str,
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    environment = pages.environment_of(service.url, str(service.admin_key))
    monkeypatch.setenv("ODOMETER_URL", service.url)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for block in pages.blocks(pages.ROOT / "docs" / "recipes" / recipe):
        if block.language == "sh":
            output = pages.run(block, environment, tmp_path)
        else:  # one program, whose blocks go on with what those before them made
            for name in ("ODOMETER_KEY", "CHARGER_KEY"):
                if name in environment:
                    monkeypatch.setenv(name, environment[name])
            assert environment.get("CHARGER_KEY", environment["ODOMETER_KEY"]) != service.admin_key
            exec(block.text, namespace)
            output = capsys.readouterr().out
        if block.shown is not None:
            assert pages.shows(block.shown, output), f"shown:\n{block.shown}\nreally:\n{output}"
    namespace["client"].close()

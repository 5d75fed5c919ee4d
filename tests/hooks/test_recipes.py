"""The code of the recipes runs, against a real service."""

import re
from pathlib import Path
from typing import Any

import pytest

from odometer_client import Client
from odometer_client.testing import Service

RECIPES = Path(__file__).resolve().parents[2] / "docs" / "recipes"
DATASETS: dict[str, dict[str, Any]] = {
    "opacus": {
        "name": "digits",
        "unit": "image",
        "delta": 1e-5,
        "budgets": [{"name": "life", "kind": "approximate", "epsilon": 4, "delta": 1e-5}],
    },
    "opendp": {
        "name": "diabetes",
        "unit": "person",
        "delta": 1e-6,
        "budgets": [{"name": "life", "kind": "pure", "epsilon": 2}],
    },
}


@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("recipe", sorted(DATASETS))
def test_a_recipe_runs(
    recipe: str,
    client: Client,
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client.create_dataset(adjacency="add_remove", **DATASETS[recipe])
    monkeypatch.setenv("ODOMETER_URL", service.url)
    monkeypatch.setenv("ODOMETER_KEY", client.create_key("charger")["token"])
    monkeypatch.chdir(tmp_path)
    text = (RECIPES / f"{recipe}.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    namespace: dict[str, Any] = {}
    for block in blocks:
        exec(block, namespace)
    assert "does not fit" in capsys.readouterr().out
    namespace["client"].close()

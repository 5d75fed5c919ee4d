"""The README's path works as it is written, and shows what it says."""

from dataclasses import replace
from pathlib import Path

import pages

from odometer_client import Client
from odometer_client.testing import serve

README = pages.ROOT / "README.md"
PRINTED_KEY, DEFAULT_URL = "po_...", "http://127.0.0.1:8790"


def test_the_five_minutes_run_and_show_what_they_say(tmp_path: Path) -> None:
    found = pages.blocks(README)
    assert {block.language for block in found} == {"sh", "python"}
    (tmp_path / "data").mkdir()  # `odometer serve` makes that of its own default alone
    with serve(f"sqlite:///{tmp_path / 'data' / 'ledger.sqlite'}") as service:
        key = str(service.admin_key)
        environment = pages.environment_of("", "")
        for block in found:
            text = block.text.replace(DEFAULT_URL, service.url).replace(PRINTED_KEY, key)
            output = pages.run(replace(block, text=text), environment, tmp_path)
            if block.shown is not None:
                assert pages.shows(block.shown, output), f"shown:\n{block.shown}\nreally:\n{output}"
        assert environment["ODOMETER_URL"] == service.url
        with Client(service.url, key) as client:
            assert [dataset.name for dataset in client.datasets()] == ["survey", "trial"]


def test_the_readme_names_its_two_commands() -> None:
    text = README.read_text("utf-8")
    assert "make serve" in text
    assert "make test" in text

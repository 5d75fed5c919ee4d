"""The dashboard of a service that has nothing in it yet, and the commands that it tells people to run."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import expect


def _run(visitor, command: str) -> str:
    """What `command` (an `odometer …` line as shown on a page) prints, run against the visitor's service."""
    program, *arguments = shlex.split(command.replace("\\\n", " "))
    assert program == "odometer"
    done = subprocess.run(
        [Path(sys.executable).parent / "odometer", *arguments],
        env={**os.environ, "ODOMETER_URL": visitor.url, "ODOMETER_KEY": visitor.key},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_empty_service_shows_the_command_that_opens_a_dataset(visitor) -> None:
    visitor.open("/")
    visitor.sign_in()
    page = visitor.page
    expect(page.locator("#datasets")).to_contain_text("No datasets yet")
    visitor.picture("empty")
    _run(visitor, page.locator("#datasets pre").inner_text())
    page.get_by_role("button", name="Refresh").click()
    expect(page.get_by_role("heading", name="patients")).to_be_visible()
    page.get_by_role("link", name="patients").click()
    expect(page.locator("#history")).to_contain_text("Nothing has been charged yet")


def test_the_command_on_the_sign_in_page_makes_a_key_that_signs_in(visitor) -> None:
    visitor.open("/")
    printed = _run(visitor, visitor.page.locator("main code").inner_text())
    token = next(word for word in printed.split() if word.startswith("po_"))
    visitor.sign_in(token)
    expect(visitor.page.get_by_role("heading", name="Datasets")).to_be_visible()
    expect(visitor.page.locator(".who")).to_contain_text("reader")

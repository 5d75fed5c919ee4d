"""Every link between the pages leads somewhere, and every registry's entries have words for them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest

from odometer_accountant.errors import registry
from odometer_accountant.mechanisms import Mechanism
from privacy_odometer.routes.table import ROUTES
from privacy_odometer.settings import Settings

PAGES = sorted([*pages.ROOT.glob("*.md"), *(pages.ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def links(page: Path) -> Iterator[tuple[str, str]]:
    """(path, anchor) of each link of a page that stays inside the repository."""
    for target in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
        if not target.startswith(("http://", "https://")):
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(pages.ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{path} is not there"
        assert not anchor or anchor in anchors(target), f"{path} has no heading {anchor}"


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_every_setting_says_what_it_is(name: str) -> None:
    assert Settings.model_fields[name].description
    assert f"`ODOMETER_{name.upper()}`" in (pages.ROOT / "docs" / "settings.md").read_text("utf-8")


def test_every_mechanism_error_and_operation_stands_in_the_reference() -> None:
    def page(name: str) -> str:
        return (pages.ROOT / "docs" / name).read_text("utf-8")

    assert all(f"\n## {kind}\n" in page("mechanisms.md") for kind in Mechanism.registry)
    assert all(f"| `{code}` |" in page("errors.md") for code in registry())
    assert all(f"`{route.method} {route.path}`" in page("http.md") for route in ROUTES.values())


def test_the_index_of_the_decisions_names_each_of_them() -> None:
    """A decision that the index leaves out is not found."""
    text = (pages.ROOT / "docs" / "decisions.md").read_text("utf-8")
    headings = re.findall(r"^#{2,3} (.+)$", text, re.MULTILINE)
    assert re.findall(r"^(?:- \*\*|  - )\[(.+?)\]\(#", text, re.MULTILINE) == headings

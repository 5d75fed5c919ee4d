"""A page of entries has a bound in bytes: long entries make it short, and nothing is left out."""

import pytest

from odometer_accountant.queries import history
from odometer_accountant.service.accountant import Accountant

ONE = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}, "count": 1}
ENTRIES = 151


@pytest.fixture(scope="module")
def accountant() -> Accountant:
    found = Accountant.open("memory://")
    document = {"name": "d", "unit": "p", "adjacency": "add_remove", "delta": 1e-6, "odometer_only": True}
    found.create_dataset(document, "p")
    for number in range(ENTRIES - 1):
        found.charge("d", ONE, f"k{number}", "ann")
    return found


def walked(accountant: Accountant, limit: int, newest_first: bool) -> list[list[int]]:
    """The numbers of the entries, page by page."""
    pages: list[list[int]] = []
    after, before = 0, None
    while True:
        page = accountant.ledger("d", after, limit, before, newest_first)
        pages.append([item["sequence"] for item in page["items"]])
        if page["next"] is None:
            return pages
        after, before = (0, page["next"]) if newest_first else (page["next"], None)


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 7, 64, 100, 1000])
@pytest.mark.parametrize("most", [1, 5_000, 10**9])
def test_every_entry_is_on_one_page(
    accountant: Accountant, limit: int, most: int, newest_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends a page, the pages together are the ledger, in order and each entry once."""
    monkeypatch.setattr(history, "PAGE_BYTES", most)
    pages = walked(accountant, limit, newest_first)
    order = list(range(1, ENTRIES + 1))
    assert [number for page in pages for number in page] == (order[::-1] if newest_first else order)
    assert max(map(len, pages)) == (
        1 if most == 1 else min(limit, ENTRIES) if most == 10**9 else len(pages[0])
    )
    if most == 5_000:
        assert max(map(len, pages)) < 20

"""What a request reads or evaluates, it reads or evaluates once."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from serving import ONE, Live, live

from odometer_accountant.budgets.coordinate import CoordinateFilter
from odometer_accountant.errors import BudgetExceeded
from odometer_accountant.numerics.loss import Loss
from odometer_accountant.requests import json_input
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import Row
from odometer_accountant.stores.memory import MemoryStore

DATASET = {"name": "d", "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
PURE = {"name": "total", "kind": "pure", "epsilon": 1.0}


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        running.open("d")
        yield running


@pytest.mark.parametrize("operation", ["charges", "holds", "checks", "budgets", "partitions"])
def test_the_json_of_a_request_is_parsed_once(
    service: Live, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """The check of the form, the effort and the validation share one parsed document."""
    parsed = []
    loads = json.loads

    def counted(text: str, **options: Any) -> Any:
        if "object_pairs_hook" in options:
            parsed.append(text)
        return loads(text, **options)

    monkeypatch.setattr(json_input.json, "loads", counted)
    headers = {"Idempotency-Key": f"once-{operation}"}
    service.ask("POST", f"/v1/datasets/d/{operation}", json={**ONE, "expires_in_s": 60}, headers=headers)
    assert len(parsed) == 1


def test_the_open_holds_are_read_once_for_an_odometer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss that they hold and the budgets without them come of one read of each."""
    with Accountant(MemoryStore()) as accountant:
        accountant.create_dataset({**DATASET, "budgets": [PURE]}, "p")
        body = {"mechanism": {"kind": "pure", "epsilon": 0.125}, "count": 1, "expires_in_s": 3600}
        numbers = [accountant.hold("d", body, f"h{number}", "p")[0]["sequence"] for number in range(3)]
        read: Counter[int] = Counter()
        entries = accountant.store.entries

        def counted(stream: str, after: int, limit: int) -> list[Row]:
            rows = entries(stream, after, limit)
            read.update(row.sequence for row in rows if row.sequence in numbers)
            return rows

        monkeypatch.setattr(accountant.store, "entries", counted)
        found = accountant.odometer("d")
        assert found["held"]["pure"] == found["budgets"][0]["held"] == 0.375
        assert set(read) == set(numbers)
        most = max(read.values())
        read.clear()
        accountant.holds("d")
        assert max(read.values()) == most  # as many as for the list alone


def test_a_refused_charge_evaluates_each_budget_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal shows the numbers of the decision; only the search for what fits evaluates other losses."""
    asked: list[Loss] = []
    allows = CoordinateFilter.allows

    def counted(self: CoordinateFilter, totals: Loss) -> bool:
        asked.append(totals)
        return allows(self, totals)

    with Accountant(MemoryStore()) as accountant:
        accountant.create_dataset({**DATASET, "budgets": [PURE]}, "p")
        accountant.charge("d", {"mechanism": {"kind": "pure", "epsilon": 0.5}, "count": 1}, "before", "p")
        monkeypatch.setattr(CoordinateFilter, "allows", counted)
        body = {"mechanism": {"kind": "laplace", "epsilon": 4.0}, "count": 3}
        with pytest.raises(BudgetExceeded) as refused:
            accountant.charge("d", body, "k", "p")
    assert [one["budget"] for one in refused.value.fields["refusals"]] == ["total"]
    assert sum(one == asked[0] for one in asked) == 1

"""Work that computes long has threads of its own: whoever asks for much of it stops nobody else's charges."""

import threading
from typing import Any

import pytest
from serving import live

import odometer_accountant.budgets.approximate
from odometer_accountant.service.accountant import Accountant


def test_charges_go_on_while_conversions_hold_their_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """More conversions than there are worker threads: a key is still looked up, and a charge still made."""
    go, began = threading.Event(), threading.Event()

    def slow(_: Any) -> dict[str, Any]:
        began.set()
        go.wait(30)
        return {"readings": [], "totals": {}}

    monkeypatch.setattr(Accountant, "convert", staticmethod(slow))
    with live(slow_after_s=5, key_refresh_s=1e-6) as service:  # the keys are read again for each request
        service.open("d")
        body = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1}, "count": 1, "delta": 1e-5}
        asked = [
            threading.Thread(
                target=service.ask, args=("POST", "/v1/convert", "reader"), kwargs={"json": body}
            )
            for _ in range(60)
        ]
        for thread in asked:
            thread.start()
        try:
            assert began.wait(10)
            assert service.charge("d", "k").status_code == 201
        finally:
            go.set()
            for thread in asked:
                thread.join(30)


@pytest.mark.parametrize("read", ["history", "spend", "scopes?kind=principal"])
def test_charges_and_checks_go_on_while_large_reads_hold_their_threads(
    read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More readers of what takes long than there are worker threads."""
    go, began = threading.Event(), threading.Event()

    def slow(*_: Any) -> dict[str, Any]:
        began.set()
        go.wait(30)
        return {}

    monkeypatch.setattr(Accountant, read.partition("?")[0], slow)
    one = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1}, "count": 1}
    with live(slow_after_s=5, key_refresh_s=1e-6) as service:  # the keys are read again for each request
        service.open("d")
        asked = [
            threading.Thread(target=service.ask, args=("GET", f"/v1/datasets/d/{read}", "reader"))
            for _ in range(60)
        ]
        for thread in asked:
            thread.start()
        try:
            assert began.wait(10)
            assert service.charge("d", "k").status_code == 201
            checked = service.ask("POST", "/v1/datasets/d/checks", "reader", json=one)
            assert checked.status_code == 200
            assert service.ask("GET", "/v1/datasets/d/odometer", "reader").status_code == 200
        finally:
            go.set()
            for thread in asked:
                thread.join(30)


def test_the_curves_of_a_workload_are_not_computed_by_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    real = odometer_accountant.budgets.approximate.total

    def noted(*arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return real(*arguments)

    monkeypatch.setattr(odometer_accountant.budgets.approximate, "total", noted)
    mechanism = {"kind": "gaussian", "noise_multiplier": 7.25}
    budget = {
        "name": "b",
        "kind": "approximate",
        "epsilon": 1,
        "delta": 1e-6,
        "workload": [{"mechanism": mechanism, "count": 3}],
    }
    with Accountant.open("memory://") as embedded:
        document = {"name": "d", "unit": "p", "adjacency": "add_remove", "delta": 1e-6, "budgets": [budget]}
        embedded.create_dataset(document, "p")
    assert names
    assert "writer" not in names

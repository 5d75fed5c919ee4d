"""The client against a real service in a process of its own, as `testing` gives it to users."""

import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from odometer_client import BudgetExceeded, Client
from odometer_client.errors import Forbidden, NotFound, Unauthenticated, Unreachable
from odometer_client.mechanisms import Pure
from odometer_client.testing import Service, serve, temporary_sqlite


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with serve() as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Service) -> Iterator[Client]:
    with Client(service.url, service.admin_key) as client:
        budgets = [{"name": "life", "kind": "pure", "epsilon": 1.0}]
        client.create_dataset("d", unit="person", adjacency="add_remove", delta=1e-6, budgets=budgets)
        client.create_dataset("race", unit="person", adjacency="add_remove", delta=1e-6, budgets=budgets)
        yield client


def test_charges_until_refused(admin: Client) -> None:
    receipt = admin.charge("d", Pure(epsilon=0.25), 3, adjacency="add_remove")
    assert (receipt.replayed, receipt.retried) == (False, False)
    with pytest.raises(BudgetExceeded) as raised:
        admin.charge("d", Pure(epsilon=0.25), 3)
    assert raised.value.would_fit["largest_count"] == 1
    assert raised.value.refusals[0]["budget"] == "life"


def test_a_budget_for_ten_admits_ten_of_many_threads(admin: Client) -> None:
    admitted: list[int] = []

    def ask() -> None:
        for _ in range(4):
            try:
                admitted.append(admin.charge("race", Pure(epsilon=0.1)).sequence)
            except BudgetExceeded:
                return

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(admitted)) == len(admitted) == 10


def test_roles_and_keys(admin: Client, service: Service) -> None:
    made = admin.create_key("reader", "dashboard")
    with Client(service.url, made["token"]) as reader:
        assert reader.me()["role"] == "reader"
        assert reader.dataset("d").name == "d"
        with pytest.raises(Forbidden):
            reader.charge("d", Pure(epsilon=0.01))
        admin.revoke_key(made["id"])
    with Client(service.url, "po_wrong") as stranger, pytest.raises(Unauthenticated):
        stranger.me()


@pytest.mark.parametrize("name", ["never-created", "a/b", "..", "", "\x00"])
def test_an_unknown_dataset_is_not_found_whatever_its_name(admin: Client, name: str) -> None:
    with pytest.raises(NotFound):
        admin.charge(name, Pure(epsilon=0.1))


def test_lists_come_in_pages(admin: Client) -> None:
    assert [dataset.name for dataset in admin.datasets()] == ["d", "race"]
    assert [item["sequence"] for item in admin.ledger("race", limit=3)] == list(range(1, 12))


def test_connections_do_not_wait_to_be_full(service: Service) -> None:
    with Client(service.url, service.admin_key) as client:
        seen: list[int] = []

        def look(response: httpx.Response) -> None:
            wire = response.extensions["network_stream"].get_extra_info("socket")
            seen.append(wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

        client._transport._http.event_hooks["response"] = [look]  # type: ignore[attr-defined]
        client.me()
        assert seen == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_connections_of_its_own(admin: Client) -> None:
    admin.me()
    parents = admin._transport._http  # type: ignore[attr-defined]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        admin.me()
        apart = admin._transport._http is not parents  # type: ignore[attr-defined]
        os.write(write, b"apart" if apart else b"shared")
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"apart"
    os.close(read)


def test_a_ledger_outlives_its_service() -> None:
    with temporary_sqlite() as store:
        with serve(store) as first, Client(first.url, first.admin_key) as client:
            budgets = [{"name": "life", "kind": "pure", "epsilon": 1.0}]
            client.create_dataset("d", unit="person", adjacency="add_remove", delta=1e-6, budgets=budgets)
            client.charge("d", Pure(epsilon=0.75), key="k")
        with pytest.raises(Unreachable), Client(first.url, first.admin_key, attempts=1) as client:
            client.me()
        with serve(store) as second, Client(second.url, first.admin_key) as client:
            assert second.admin_key is None
            assert client.charge("d", Pure(epsilon=0.75), key="k").replayed


def test_a_service_that_does_not_start_says_why(tmp_path: Path) -> None:
    failing = tmp_path / "failing.py"
    failing.write_text("import sys; print('no room'); sys.exit(3)")
    command = [sys.executable, str(failing)]
    with pytest.raises(RuntimeError, match="status 3:\nno room"), serve(command=command):
        pass

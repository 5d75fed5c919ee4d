"""A real server for tests: uvicorn in a thread of this process, on a free port of 127.0.0.1."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import httpx
import uvicorn
from fastapi import FastAPI

import privacy_odometer.app
from odometer_accountant.stores import Store, open_store
from privacy_odometer.app import create_app
from privacy_odometer.connections import Connection, watched
from privacy_odometer.settings import Settings

ROLES = ("reader", "charger", "admin")
GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 1.0}
"""Costs rho = 0.5 a time."""
ONE = {"mechanism": GAUSSIAN, "count": 1}


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up_or_over = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up_or_over.set()

    async def main_loop(self) -> None:
        async with watched(self.server_state.connections):
            await super().main_loop()


@dataclass
class Live:
    """A running service, with a key of each role."""

    url: str
    app: FastAPI
    admin: str
    server: uvicorn.Server
    keys: dict[str, str] = field(default_factory=dict)
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    def connections(self) -> list[Any]:
        """Those that are there now, but for this client's own."""
        self.http.close()
        self.http = httpx.Client(timeout=60)
        return list(self.server.server_state.connections)

    def ask(self, method: str, path: str, key: str | None = "admin", **more: Any) -> httpx.Response:
        """One request, with the key of a role (or a token, or None for no key)."""
        headers = {**more.pop("headers", {})}
        if key is not None:
            headers["Authorization"] = f"Bearer {self.keys.get(key, key)}"
        self.http.cookies.clear()
        return self.http.request(method, self.url + path, headers=headers, **more)

    def charge(self, dataset: str, key: str, body: Any = ONE, role: str = "charger") -> httpx.Response:
        headers = {"Idempotency-Key": key}
        return self.ask("POST", f"/v1/datasets/{dataset}/charges", role, json=body, headers=headers)

    def open(self, name: str, rho: float = 1e6, **more: Any) -> dict[str, Any]:
        """A dataset with one zCDP budget; a charge of `ONE` costs 0.5 of it."""
        reply = self.ask("POST", "/v1/datasets", json={**dataset_document(name, rho), **more})
        assert reply.status_code == 201, reply.text
        opened: dict[str, Any] = reply.json()
        return opened

    def make_key(self, role: str) -> dict[str, Any]:
        made: dict[str, Any] = self.ask("POST", "/v1/keys", json={"role": role}).json()
        return made


def dataset_document(name: str, rho: float = 1e6) -> dict[str, Any]:
    """What opens a dataset with one zCDP budget called `life`."""
    return {
        "name": name,
        "unit": "person",
        "adjacency": "add_remove",
        "delta": 1e-6,
        "budgets": [{"name": "life", "kind": "zcdp", "rho": rho}],
    }


@contextlib.contextmanager
def live(store: Store | str = "memory://", **settings: Any) -> Iterator[Live]:
    """A server until the end of the block, on a store of its own or the one given."""
    url = store if isinstance(store, str) else "memory://"
    app = create_app(Settings(store=url, key_refresh_s=settings.pop("key_refresh_s", 0.05), **settings))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    config = uvicorn.Config(
        app, http=Connection, log_config=None, lifespan="on", ws="none", timeout_graceful_shutdown=5
    )
    server = _Server(config)

    def run() -> None:
        try:
            server.run(sockets=[listening])
        finally:
            server.up_or_over.set()

    thread = threading.Thread(target=run, name="uvicorn")
    opener = open_store if isinstance(store, str) else mock.Mock(return_value=store)
    with mock.patch.object(privacy_odometer.app, "open_store", opener):
        thread.start()
        server.up_or_over.wait(30)
    assert server.started, "the server did not start"
    running = Live(f"http://127.0.0.1:{port}", app, app.state.first_key or "", server)
    try:
        yield _with_keys(running)
    finally:
        running.http.close()
        server.should_exit = True
        thread.join(30)
        listening.close()


def _with_keys(running: Live) -> Live:
    if running.admin:
        running.keys["admin"] = running.admin
        running.keys |= {role: running.make_key(role)["token"] for role in ROLES if role != "admin"}
    return running

"""Charging as fast as Python's own HTTP client goes: one connection per caller, retries with the same key."""

import http.client
import json
import threading
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from odometer_client.keys import new_key

LOST = (OSError, http.client.HTTPException)
"""What a caller sees when the server goes away."""


@dataclass(frozen=True)
class Reply:
    """What the service answered."""

    status: int
    document: dict[str, Any]


class Connection:
    """One kept connection to a service."""

    def __init__(self, url: str, token: str, timeout_s: float = 60) -> None:
        where = urlsplit(url)
        self._token = token
        self._http = http.client.HTTPConnection(where.hostname or "", where.port, timeout=timeout_s)

    def charge(self, dataset: str, key: str, body: Any) -> Reply:
        """One charge. Raises one of `LOST` when there is no whole answer."""
        return self.post(f"/v1/datasets/{dataset}/charges", body, key)

    def post(self, path: str, body: Any, key: str | None = None) -> Reply:
        """One request. Raises one of `LOST` when there is no whole answer."""
        headers = {"Authorization": f"Bearer {self._token}"}
        if key is not None:
            headers["Idempotency-Key"] = key
        self._http.request("POST", path, json.dumps(body).encode(), headers)
        answer = self._http.getresponse()
        return Reply(answer.status, json.loads(answer.read()))

    def charge_for_certain(self, dataset: str, key: str, body: Any, attempts: int = 200) -> Reply:
        """As `charge`, asked again with the same key while the service is unsure."""
        for _ in range(attempts):
            reply = self.charge(dataset, key, body)
            if reply.status != 503:
                return reply
        raise AssertionError(f"unsure {attempts} times: {reply}")

    def close(self) -> None:
        self._http.close()


@dataclass
class Caller(threading.Thread):
    """Charges, each time under a new key, until it is told to stop or the server goes away.

    `acked` has what was answered with a receipt; `open_` the charge whose answer is not known.
    """

    url: str
    token: str
    dataset: str
    bodies: list[Any]
    acked: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By key: which body, and the sequence number of the receipt."""
    open_: tuple[str, int] | None = None
    wrong: list[Reply] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    some: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        connection = Connection(self.url, self.token)
        number = 0
        try:
            while not self.stop.is_set():
                self.open_ = self.open_ or (new_key(), number % len(self.bodies))
                if not self._once(connection):
                    return
                number += 1
        finally:
            connection.close()

    def _once(self, connection: Connection) -> bool:
        assert self.open_ is not None
        key, which = self.open_
        try:
            reply = connection.charge(self.dataset, key, self.bodies[which])
        except LOST:
            return False
        if reply.status in (200, 201):
            self.acked[key] = which, reply.document["sequence"]
            self.open_ = None
            self.some.set()
        elif reply.status != 503:
            self.wrong.append(reply)
            return False
        return True

"""The synchronous client: one method per thing the service does."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self
from urllib.parse import quote

import httpx

from odometer_client.base import UnexpectedAnswer
from odometer_client.calls import Call, Done, Repeat, Request, TransportFailure
from odometer_client.documents import Check, Dataset, Document, Odometer, Receipt
from odometer_client.keys import new_key
from odometer_client.mechanism import Mechanism
from odometer_client.transport import HttpTransport, Transport

AnyMechanism = Mechanism | Mapping[str, Any]
"""A typed mechanism, or its JSON document."""
Charges = AnyMechanism | Sequence[tuple[AnyMechanism, int]]
"""One mechanism, or a list of (mechanism, count) that is charged all or nothing."""


class Client:
    """A client of one service, or of an embedded ledger. Thread-safe: one is enough for a process.

    Args:
        url: `http(s)://host:port` of a service; `sqlite:///path` or `memory://` for an embedded ledger
            without a server, where the package `privacy-odometer` is installed.
        key: API key of the service; an embedded ledger takes none.
        timeout_s: longest wait, in seconds, for each phase (connect, write, read) of one try.
        attempts: most tries of one call, 1 to 100, all with the same idempotency key.

    Every method raises the classes of `odometer_client.errors`. Whatever `charge` raises: do not release.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout_s: float = 10.0,
        attempts: int = 5,
        http_transport: httpx.BaseTransport | None = None,
    ) -> None:
        if not 1 <= attempts <= 100:
            raise ValueError(f"attempts is {attempts}: give 1 to 100")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}: give seconds above 0")
        self.url = url
        self._attempts = attempts
        self._transport = _transport(url, key, timeout_s, http_transport)
        self._sleep: Callable[[float], None] = time.sleep

    def charge(
        self,
        dataset: str,
        mechanism: Charges,
        count: int | None = None,
        *,
        key: str | None = None,
        adjacency: str | None = None,
    ) -> Receipt:
        """Record that `mechanism` is about to run `count` times (default 1); release only after it returns.

        Args:
            dataset: name of the dataset.
            mechanism: what runs, or a list of (mechanism, count): all of it is charged or none.
            count: 1 to 1,000,000,000; only with a single mechanism.
            key: idempotency key, 1 to 128 printable ASCII characters. Leave it out unless you ask again
                for the very same work after `OutcomeUnknown`.
            adjacency: "add_remove", "replace_one" or "zero_out" as the mechanism's analysis has it;
                refused when the dataset's differs.

        Raises: BudgetExceeded (with `refusals` and `would_fit`), OutcomeUnknown, and every other error.
        """
        key = new_key() if key is None else key
        body = _charges(mechanism, count, adjacency)
        done = self._run(
            "charge",
            "POST",
            f"/v1/datasets/{_segment(dataset)}/charges",
            "with key",
            arguments={"dataset": dataset},
            body=body,
            headers={"Idempotency-Key": key},
            key=key,
        )
        return _receipt(done, dataset, key)

    def check(
        self, dataset: str, mechanism: Charges, count: int | None = None, *, adjacency: str | None = None
    ) -> Check:
        """Whether a charge would fit now, and what would fit instead. Charges nothing, promises nothing."""
        body = _charges(mechanism, count, adjacency)
        path = f"/v1/datasets/{_segment(dataset)}/checks"
        return Check(
            self._run("check", "POST", path, "safe", arguments={"dataset": dataset}, body=body).document
        )

    def odometer(self, dataset: str, delta: float | None = None) -> Odometer:
        """The readings of a dataset, at `delta` (0 < delta < 1; left out: the dataset's own)."""
        path = f"/v1/datasets/{_segment(dataset)}/odometer"
        return Odometer(self._get("odometer", path, {"dataset": dataset}, {"delta": delta}))

    def create_dataset(
        self,
        name: str,
        *,
        unit: str,
        adjacency: str,
        delta: float,
        budgets: Sequence[Mapping[str, Any]] = (),
        **more: Any,
    ) -> Dataset:
        """Open a dataset's ledger (role admin). Names are never used twice.

        Args:
            name: 1 to 64 of a-z, 0-9, "-" and "_", the first a letter or digit.
            unit: what one unit of privacy is: "person", "record", "device", ...
            adjacency: "add_remove", "replace_one" or "zero_out".
            delta: the delta at which readings are given, 0 < delta < 1.
            budgets: budget documents, like
                {"name": "life", "kind": "approximate", "epsilon": 3, "delta": 1e-6}.
            more: further members of the document: delta_add, workload, odometer_only.
        """
        body = {"name": name, "unit": unit, "adjacency": adjacency, "delta": delta, **more}
        if budgets:
            body["budgets"] = [dict(budget) for budget in budgets]
        return Dataset(self._run("create_dataset", "POST", "/v1/datasets", "never", body=body).document)

    def datasets(self) -> Iterator[Dataset]:
        """Every dataset, page by page."""
        return (Dataset(item) for item in self._pages("datasets", "/v1/datasets", {}))

    def dataset(self, name: str) -> Dataset:
        """One dataset with the state of its budgets."""
        return Dataset(self._get("dataset", f"/v1/datasets/{_segment(name)}", {"dataset": name}))

    def add_budget(self, dataset: str, budget: Mapping[str, Any]) -> Document:
        """Add a budget to a dataset (role admin)."""
        path = f"/v1/datasets/{_segment(dataset)}/budgets"
        arguments = {"dataset": dataset}
        return Document(
            self._run("add_budget", "POST", path, "never", arguments=arguments, body=budget).document
        )

    def set_budget(self, dataset: str, name: str, budget: Mapping[str, Any], *, etag: str) -> Document:
        """Change a budget (role admin). `etag` is the budget's as you read it: the version you change."""
        path = f"/v1/datasets/{_segment(dataset)}/budgets/{_segment(name)}"
        done = self._run(
            "set_budget",
            "PUT",
            path,
            "never",
            arguments={"dataset": dataset, "name": name, "etag": etag},
            body=budget,
            headers={"If-Match": etag},
        )
        return Document(done.document)

    def close_dataset(self, dataset: str) -> Dataset:
        """Take no more charges, for ever (role admin)."""
        path = f"/v1/datasets/{_segment(dataset)}/closure"
        return Dataset(
            self._run(
                "close_dataset", "POST", path, "never", arguments={"dataset": dataset}, body={}
            ).document
        )

    def ledger(self, name: str, after: int = 0, *, limit: int = 1000) -> Iterator[Document]:
        """The entries after sequence number `after`, oldest first, read in pages of `limit` (1 to 1000)."""
        path = f"/v1/datasets/{_segment(name)}/ledger"
        return (Document(item) for item in self._pages("ledger", path, {"dataset": name}, after, limit))

    def history(self, dataset: str, points: int = 200) -> list[dict[str, Any]]:
        """The loss over the ledger, down-sampled by the service to at most `points`."""
        path = f"/v1/datasets/{_segment(dataset)}/history"
        return list(self._get("history", path, {"dataset": dataset}, {"points": points})["points"])

    def spend(self, dataset: str) -> Document:
        """What each principal and each kind of mechanism spent."""
        return Document(self._get("spend", f"/v1/datasets/{_segment(dataset)}/spend", {"dataset": dataset}))

    def mechanisms(self) -> list[dict[str, Any]]:
        """What can be charged: kind, parameters, formula, source, where it is valid, examples."""
        return list(self._pages("mechanisms", "/v1/mechanisms", {}))

    def convert(
        self,
        mechanism: Charges,
        count: int | None = None,
        *,
        delta: float | None = None,
        epsilon: float | None = None,
        adjacency: str | None = None,
    ) -> Document:
        """What a plan would cost on no dataset at all: give `delta` to read epsilon, or the other way."""
        body = _charges(mechanism, count, adjacency)
        body |= {name: value for name, value in (("delta", delta), ("epsilon", epsilon)) if value is not None}
        return Document(self._run("convert", "POST", "/v1/convert", "safe", body=body).document)

    def create_key(self, role: str, name: str | None = None) -> Document:
        """A new API key (role admin): "admin", "charger" or "reader". Its `token` is shown only here."""
        body = {"role": role} | ({} if name is None else {"name": name})
        return Document(self._run("create_key", "POST", "/v1/keys", "never", body=body).document)

    def keys(self) -> Iterator[Document]:
        """The API keys, without their tokens (role admin)."""
        return (Document(item) for item in self._pages("keys", "/v1/keys", {}))

    def revoke_key(self, key_id: str) -> None:
        """Make an API key useless at once (role admin)."""
        self._run("revoke_key", "DELETE", f"/v1/keys/{_segment(key_id)}", "never", arguments={"id": key_id})

    def me(self) -> Document:
        """Who this client's key says you are: key, role, principal."""
        return Document(self._get("me", "/v1/me", {}))

    def close(self) -> None:
        """Let go of the connections."""
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copy of a model or a configuration still talks through the same connections

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A Client holds connections and a key and is not pickled. "
            "Make one in each process: pass the URL, and the key by the environment."
        )

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def _get(
        self,
        operation: str,
        path: str,
        arguments: Mapping[str, Any],
        query: Mapping[str, str | int | float | None] | None = None,
    ) -> Any:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return self._run(operation, "GET", path, "safe", arguments=arguments, query=given).document

    def _pages(
        self, operation: str, path: str, arguments: Mapping[str, Any], after: Any = None, limit: Any = None
    ) -> Iterator[Any]:
        while True:
            page = self._get(operation, path, arguments, {"after": after, "limit": limit})
            yield from page["items"]
            after = page.get("next")
            if after is None:
                return

    def _run(self, operation: str, method: str, path: str, repeat: Repeat, **parts: Any) -> Done:
        call = Call(Request(operation, method, path, repeat, **parts), self._attempts)
        while True:
            try:
                step = call.answered(self._transport.send(call.request))
            except TransportFailure as failure:
                step = call.failed(failure)
            if isinstance(step, Done):
                return step
            self._sleep(step.seconds)


def _transport(
    url: str, key: str | None, timeout_s: float, http_transport: httpx.BaseTransport | None
) -> Transport:
    scheme = url.partition("://")[0].lower()
    if scheme in ("http", "https"):
        return HttpTransport(url, key, timeout_s, http_transport)
    if scheme in ("sqlite", "memory"):
        from odometer_client.embedded import EmbeddedTransport

        return EmbeddedTransport(url)
    raise ValueError(
        f"{url!r} is no URL of a service or ledger: "
        "give http://host:port, https://host, sqlite:///path/to/ledger.sqlite or memory://"
    )


def _charges(mechanism: Charges, count: int | None, adjacency: str | None) -> dict[str, Any]:
    """The body of a charge."""
    if isinstance(mechanism, Mechanism | Mapping):
        body: dict[str, Any] = {"mechanism": _document(mechanism), "count": 1 if count is None else count}
    elif count is not None:
        raise ValueError("a list says the count of each mechanism itself: leave `count` out")
    else:
        body = {"charges": [{"mechanism": _document(one), "count": times} for one, times in mechanism]}
    return body if adjacency is None else body | {"adjacency": adjacency}


def _receipt(done: Done, dataset: str, key: str) -> Receipt:
    """The receipt, once it is certain that it is one: a release will rest on it."""
    document = done.document
    if isinstance(document, Mapping) and document.get("dataset") == dataset:
        whole = isinstance(document.get("sequence"), int) and isinstance(document.get("replayed"), bool)
        if whole and document.get("hash"):
            return Receipt(document, retried=done.retried)
    raise UnexpectedAnswer(
        f"The answer to the charge with key {key!r} is no receipt for dataset {dataset!r}. Release nothing. "
        "Does the URL point at the service itself, and is a proxy between?"
    )


def _document(mechanism: AnyMechanism) -> dict[str, Any]:
    return mechanism.document() if isinstance(mechanism, Mechanism) else dict(mechanism)


def _segment(name: str) -> str:
    """A name as one segment of a path, whatever it contains: "", "." and ".." would be another path."""
    if not name:
        return "%00"
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")

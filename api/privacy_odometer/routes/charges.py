"""POST /v1/datasets/{dataset}/charges: the hot route, a bare ASGI endpoint."""

import logging
import re
from collections import OrderedDict
from functools import partial
from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from odometer_accountant.bounds import BODY_MAX
from odometer_accountant.errors import OdometerError, StoreUnavailable, TooManyRequests
from odometer_accountant.ledger.commands import Caller, ChargeCommand
from odometer_accountant.ledger.decisions import Admitted, Replayed
from odometer_accountant.ledger.prepared import PreparedCharge
from odometer_accountant.requests.json_input import JsonBody
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.api_keys import Identity, Role
from odometer_accountant.service.request_checks import idempotency_key, is_slug, unknown_dataset
from odometer_accountant.writer.batch import Outcome
from privacy_odometer.authentication import Authenticator
from privacy_odometer.lanes import Lanes
from privacy_odometer.metrics import ChargeCounts, outcome_of
from privacy_odometer.problems import MEDIA_TYPE, NO_STORE, internal_error, problem_bytes, problem_headers
from privacy_odometer.raw_request import bearer, header, read_body
from privacy_odometer.refusal_log import UnsureLog, refused
from privacy_odometer.routes.scheduling import computed
from privacy_odometer.threads import LoopSink

log = logging.getLogger("odometer.api")

_KNOWN_BYTES: Final = 12 * 1024 * 1024
_KNOWN_BODY_MAX: Final = 4096
_ADVICE_WAIT_S: Final = 2.0
"""Longest wait of a refusal for its advice."""
CHARGE: Final = "charge"
_PATH = re.compile(r"/v1/datasets/([^/]+)/charges")
_NO_STORE = [(name.encode(), text.encode()) for name, text in NO_STORE.items()]
_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", MEDIA_TYPE.encode())


class ChargeShortcut:
    """Sends a charge straight to its endpoint. The app's layers and routes would cost as much as the charge.

    All other requests go through them as usual.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            found = _PATH.fullmatch(scope["path"])
            if found:
                scope["path_params"] = {"dataset": found[1]}
                await scope["app"].state.charges(scope, receive, send)
                return
        await self._app(scope, receive, send)


class PreparedRequests:
    """Prepared charges by the bytes of their requests: a training job sends the same body step after step.

    Bounded in bytes. A request is kept only once its charge was admitted, so refused ones fill no memory.
    """

    def __init__(self, most_bytes: int = _KNOWN_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._prepared: OrderedDict[bytes, PreparedCharge] = OrderedDict()
        self.get = self._prepared.get

    def add(self, body: bytes, prepared: PreparedCharge) -> None:
        """Keep a request, and drop the oldest ones above the bound."""
        if len(body) > _KNOWN_BODY_MAX or body in self._prepared:
            return
        self._prepared[body] = prepared
        self._bytes += _bytes_of(body, prepared)
        while self._bytes > self._most_bytes:
            self._bytes -= _bytes_of(*self._prepared.popitem(last=False))


def _bytes_of(body: bytes, prepared: PreparedCharge) -> int:
    """About the memory of a kept request, in bytes. A test compares it with the real size."""
    return 8192 + 8 * len(body) + 12288 * len(prepared.charges)


class ChargeEndpoint:
    """Checks the key, reads the body, asks the writer, sends the receipt.

    A known request needs no thread: its curves were computed before. A new one is prepared in a lane.
    """

    def __init__(
        self,
        accountant: Accountant,
        authenticator: Authenticator,
        sink: LoopSink,
        lanes: Lanes,
        unsure_log: UnsureLog,
    ) -> None:
        self._accountant = accountant
        self._authenticator = authenticator
        self._sink = sink
        self._lanes = lanes
        self._unsure_log = unsure_log
        self._known = PreparedRequests()
        self.counts = ChargeCounts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, kind, headers = perf_counter(), _JSON, _NO_STORE
        try:
            body, replayed = await self._charge(scope, receive)
            status = 200 if replayed else 201
            result = "replayed" if replayed else "admitted"
        except OdometerError as error:
            body, status, kind, result = problem_bytes(error), error.status, _PROBLEM, outcome_of(error)
            headers = [(name.encode(), text.encode()) for name, text in problem_headers(error).items()]
            self._unsure_log.tell(error)
            self.counts.refuse(CHARGE, error)
        except Exception:
            log.exception("unexpected fault")
            fault = internal_error()
            body, status, kind, result = problem_bytes(fault), fault.status, _PROBLEM, outcome_of(fault)
        self.counts.add(result, perf_counter() - started)
        headers = [*headers, kind, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _charge(self, scope: Scope, receive: Receive) -> tuple[bytes, bool]:
        headers, name = scope["headers"], scope["path_params"]["dataset"]
        # The key comes first: without one, nothing is read and nothing computed.
        identity = await self._authenticator.admit(bearer(header(headers, b"authorization")), Role.charger)
        body = await read_body(receive)
        key, prepared = header(headers, b"idempotency-key"), self._known.get(body)
        new = prepared is None
        if prepared is None:
            work = partial(self._prepare, name, body, key, identity.caller)
            prepared = await computed(self._lanes, identity.principal, self._limit_s, len(body), work)
        key = idempotency_key(key)
        if not is_slug(name):
            raise unknown_dataset(name)
        if prepared.units is not None:  # the store says which shard keeps them
            stream, command = await self._lanes.reading.run(
                identity.principal,
                self._limit_s,
                self._accountant.command,
                name,
                prepared,
                key,
                identity.caller,
            )
        else:
            stream, command = self._accountant.command(name, prepared, key, identity.caller)
        outcome = await self._sink.ask(stream, command)
        if isinstance(outcome, Admitted | Replayed):
            if new:
                self._known.add(body, prepared)
            return self._accountant.receipt(outcome, command)
        error = await self._refusal(outcome, command, identity)
        if error.status in (403, 409):
            refused(CHARGE, identity.principal, name, error)
        raise error

    @property
    def _limit_s(self) -> float:
        return self._sink.slow_after_s

    def _prepare(self, name: str, body: bytes, key: str | None, caller: Caller) -> PreparedCharge:
        """Prepare a new request, in a thread. Faults of its form come before faults of its dataset."""
        if len(body) <= BODY_MAX:
            body = JsonBody.parse(body)
        once = idempotency_key(key)
        self._accountant.known_dataset(name)
        return self._accountant.prepare(name, body, once=(once, caller))

    async def _refusal(self, outcome: Outcome, command: ChargeCommand, identity: Identity) -> OdometerError:
        """The error of a refused outcome. Without time for advice, the refusal goes out without it."""
        try:
            return await self._lanes.quick.run(
                identity.principal,
                min(_ADVICE_WAIT_S, self._limit_s),
                self._accountant.refusal,
                outcome,
                command,
            )
        except (TooManyRequests, StoreUnavailable):
            return self._accountant.refusal(outcome, command, advise=False)

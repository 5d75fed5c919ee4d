"""POST /v1/datasets/{dataset}/charges: the hot route, an ASGI endpoint that parses its own body."""

import logging
import re
from collections import OrderedDict
from time import perf_counter

from starlette.types import ASGIApp, Receive, Scope, Send

from accountant.commands import Prepared
from accountant.decisions import Admitted, Replayed
from accountant.documents import BODY_MAX, read_json
from accountant.errors import BudgetExceeded, OdometerError
from accountant.requests import idempotency_key, is_slug, unknown_dataset
from accountant.service import Accountant
from api.auth import KeyRing, Role, allowed
from api.incoming import bearer, header, read_body
from api.metrics import ChargeCounts, outcome_of
from api.problems import MEDIA_TYPE, NEVER_KEPT, internal_error, problem_bytes, problem_headers
from api.waiting import COMPUTING, PREPARING, LoopSink, in_thread

log = logging.getLogger("odometer.api")

_CACHED_REQUESTS = 2048
_CACHED_BODY_MAX = 4096
_PATH = re.compile(r"/v1/datasets/([^/]+)/charges")
_NEVER_KEPT = [(name.encode(), text.encode()) for name, text in NEVER_KEPT.items()]
_JSON = (b"content-type", b"application/json")
_PROBLEM = (b"content-type", MEDIA_TYPE.encode())


class ChargesFirst:
    """Takes a charge to its endpoint ahead of the app's layers and routes, which cost as much as the charge.

    Whatever is not plainly a charge goes through them as usual.
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


class ChargeEndpoint:
    """Reads, recognises, asks the teller, writes the receipt.

    A training job sends the same body step after step: parsed requests are kept by their bytes, so
    that their curves are computed once. A request that is new is prepared in a thread.
    """

    def __init__(self, accountant: Accountant, ring: KeyRing, sink: LoopSink) -> None:
        self._accountant = accountant
        self._ring = ring
        self._sink = sink
        self._prepared: OrderedDict[bytes, Prepared] = OrderedDict()
        self.counts = ChargeCounts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, kind, headers = perf_counter(), _JSON, _NEVER_KEPT
        try:
            body, replayed = await self._charge(scope, receive)
            status = 200 if replayed else 201
            result = "replayed" if replayed else "admitted"
        except OdometerError as error:
            body, status, kind, result = problem_bytes(error), error.status, _PROBLEM, outcome_of(error)
            headers = [(name.encode(), text.encode()) for name, text in problem_headers(error).items()]
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
        body = await read_body(receive)
        prepared = self._prepared.get(body)
        if prepared is None and len(body) <= BODY_MAX:
            read_json(body)  # 400 comes before anything else
        key = idempotency_key(header(headers, b"idempotency-key"))
        token = bearer(header(headers, b"authorization"))
        if not self._ring.settled(token):
            await in_thread(self._sink.slow_after_s, self._ring.refresh)
        identity = allowed(self._ring.cached(token), Role.charger)
        if not is_slug(name):
            raise unknown_dataset(name)
        if prepared is None:
            prepared = await in_thread(self._sink.slow_after_s, self._prepare, name, body, lane=PREPARING)
        limit_s = self._sink.slow_after_s
        if prepared.units is not None:  # which shard keeps them is asked of the store
            stream, command = await in_thread(
                limit_s, self._accountant.command, name, prepared, key, identity.caller
            )
        else:
            stream, command = self._accountant.command(name, prepared, key, identity.caller)
        outcome = await self._sink.ask(stream, command)
        if isinstance(outcome, Admitted | Replayed):
            return self._accountant.receipt(outcome, command)
        error = await in_thread(limit_s, self._accountant.refusal, outcome, command, lane=COMPUTING)
        if error.status == BudgetExceeded.status:  # a refusal is no entry: the log is where it can be found
            log.info("refused %s a charge of %s: %s", identity.principal, name, error.detail)
        raise error

    def _prepare(self, name: str, body: bytes) -> Prepared:
        prepared = self._accountant.prepare(name, body)
        if len(body) <= _CACHED_BODY_MAX:
            self._prepared[body] = prepared
            while len(self._prepared) > _CACHED_REQUESTS:
                self._prepared.popitem(last=False)
        return prepared

"""The peers of bench/charge.py: a no-op route, and a plain service. `peers.py NAME PORT TOKEN …`."""

import hashlib
import json
import sqlite3
import sys
import threading
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException, Path
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from odometer_accountant.requests.bodies import OneCharge
from odometer_accountant.service.responses.charges import ChargeReply, LeftReply, LossReply, Receipt

bearer = HTTPBearer()


def checker(token: str):
    """A dependency that checks the key as the service does: by its hash."""
    known = {hashlib.sha256(token.encode()).hexdigest(): "p_bench"}

    async def principal(credentials: Annotated[HTTPAuthorizationCredentials, Depends(bearer)]) -> str:
        found = known.get(hashlib.sha256(credentials.credentials.encode()).hexdigest())
        if found is None:
            raise HTTPException(401)
        return found

    return principal


def receipt(dataset: str, charge: OneCharge, principal: str, sequence: int, rho: float) -> Receipt:
    """A receipt of the service's shape."""
    return Receipt(
        dataset=dataset,
        sequence=sequence,
        hash="0" * 64,
        time="2026-01-01T00:00:00.000000Z",
        principal=principal,
        replayed=False,
        charges=[ChargeReply(mechanism=charge.mechanism.document(), count=charge.count)],
        loss=LossReply(pure=None, rho=rho, mu=None, delta=0.0),
        left=[
            LeftReply(
                budget="life",
                scope="dataset",
                kind="approximate",
                order=8.0,
                limit=1e4,
                spent=rho,
                left=1e4,
                used=0.0,
            )
        ],
    )


def noop(token: str) -> FastAPI:
    """An idiomatic route: validates the same body, checks the same key, returns a receipt. No accounting."""
    app = FastAPI()
    principal = checker(token)

    @app.post("/v1/datasets/{dataset}/charges", status_code=201)
    async def charge(
        dataset: Annotated[str, Path(pattern="^[a-z0-9][a-z0-9_-]{0,63}$")],
        body: OneCharge,
        idempotency_key: Annotated[str, Header(min_length=1, max_length=128)],
        who: Annotated[str, Depends(principal)],
    ) -> Receipt:
        return receipt(dataset, body, who, len(idempotency_key), 0.5)

    return app


def plain(token: str, database: str) -> FastAPI:
    """A service that a team would write in a day: FastAPI, dp_accounting, a lock, one SQLite row."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.rdp import RdpAccountant

    app = FastAPI()
    principal = checker(token)
    lock = threading.Lock()
    connection = sqlite3.connect(database, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS spent (dataset TEXT PRIMARY KEY, epsilon REAL, charges INTEGER)"
    )
    connection.commit()
    accountant = RdpAccountant()

    @app.post("/v1/datasets/{dataset}/charges", status_code=201)
    def charge(
        dataset: Annotated[str, Path(pattern="^[a-z0-9][a-z0-9_-]{0,63}$")],
        body: OneCharge,
        idempotency_key: Annotated[str, Header(min_length=1, max_length=128)],
        who: Annotated[str, Depends(principal)],
    ) -> Receipt:
        mechanism = body.mechanism
        event = PoissonSampledDpEvent(
            mechanism.sampling_rate, GaussianDpEvent(mechanism.base.noise_multiplier)
        )
        with lock:
            accountant.compose(SelfComposedDpEvent(event, body.count))
            epsilon = accountant.get_epsilon(1e-5)
            if epsilon > 1e4:
                raise HTTPException(409)
            connection.execute(
                "INSERT INTO spent VALUES (?, ?, 1) ON CONFLICT(dataset) DO UPDATE "
                "SET epsilon = excluded.epsilon, charges = charges + 1",
                (dataset, epsilon),
            )
            connection.commit()
        return receipt(dataset, body, who, len(idempotency_key), epsilon)

    return app


class Announcing(uvicorn.Server):
    """Says when it listens."""

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        print(json.dumps({"ready": True}), flush=True)


def main() -> None:
    name, port, token = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    app = noop(token) if name == "noop" else plain(token, sys.argv[4])
    config = uvicorn.Config(app, host="127.0.0.1", port=port, access_log=False, log_level="warning")
    Announcing(config).run()


if __name__ == "__main__":
    main()

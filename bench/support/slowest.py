"""The slowest requests that a reader's key may make, of every kind that is accepted or read to its end."""

import itertools
import json

from odometer_accountant.requests.effort import EFFORT_MAX, effort
from odometer_accountant.requests.json_input import BODY_MAX, STRUCTURES_MAX

Request = tuple[str, str, bytes]


def requests(dataset: str) -> list[Request]:
    """Method, path and body of each."""
    checks = f"/v1/datasets/{dataset}/checks"
    found: list[Request] = []
    for mechanism in _nested():
        number = max(1, min(256, int(EFFORT_MAX / (effort(mechanism) + 0.02))))
        many = [{"mechanism": mechanism, "count": 1}] * number
        while number > 1 and len(json.dumps({"charges": many})) > BODY_MAX:
            number //= 2
            many = many[:number]
        found.append(("POST", checks, _json({"charges": many})))
        found.append(("POST", checks, _json({"mechanism": mechanism, "count": 1_000_000})))
        found.append(("POST", "/v1/convert", _json({"charges": many, "delta": 1e-6})))
    found += [("POST", path, body) for path in (checks, "/v1/convert", "/v1/dp-events") for body in _faulty()]
    found.append(("POST", "/v1/dp-events", _events()))
    found += [
        ("GET", f"/v1/datasets/{dataset}/{what}", b"")
        for what in (
            "history?points=1000",
            "spend",
            "ledger?limit=1000",
            "lineage?entry=1",
            "scopes?kind=mechanism&limit=1000",
            "odometer?delta=1e-9",
        )
    ]
    found += [("GET", path, b"") for path in ("/v1/mechanisms", "/v1/datasets", "/openapi.json")]
    return found


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def _nested() -> list[dict]:
    """Mechanisms whose curves take longest, each within the bound."""
    noise = itertools.count(1)

    def gaussian() -> dict:
        return {"kind": "gaussian", "noise_multiplier": 3 + next(noise) / 7}

    def composed(parts: list[dict]) -> dict:
        return {"kind": "composed", "mechanisms": parts}

    def grouped(base: dict, size: int = 2) -> dict:
        return {"kind": "grouped", "base": base, "group_size": size}

    def sampled(base: dict) -> dict:
        return {"kind": "poisson_subsampled", "base": base, "sampling_rate": 0.3162}

    def batch(base: dict) -> dict:
        return {"kind": "sampled_without_replacement", "base": base, "batch_size": 100, "population": 100_003}

    steps = [1.5 + number / 4 for number in range(512)]
    stated = {"kind": "renyi_curve", "orders": steps, "epsilons": [order / 1e3 for order in steps]}
    laplace = {"kind": "discrete_laplace", "scale": 381975794698.7852, "sensitivity": 534}
    wide = composed([composed([gaussian() for _ in range(16)]) for _ in range(16)])
    tuned = {"kind": "tuned", "repeats": {"distribution": "poisson", "mean": 1e6}}
    return [
        wide,
        grouped(composed([gaussian() for _ in range(16)])),
        grouped(wide["mechanisms"][0], 3),
        composed([grouped(composed([gaussian() for _ in range(8)])) for _ in range(16)]),
        sampled(composed([laplace] * 16)),
        sampled(stated),
        batch(composed([laplace] * 16)),
        grouped(stated),
        grouped(sampled({"kind": "laplace", "epsilon": 0.7}), 1024),
        {**tuned, "base": grouped(composed([laplace] * 16))},
        composed([sampled({"kind": "laplace", "epsilon": 0.7})] * 16),
        {
            "kind": "poisson_subsampled",
            "base": {**gaussian(), "noise_multiplier": 0.04},
            "sampling_rate": 0.3162,
        },
        {"kind": "count_mean_sketch", "epsilon": 1.1},
    ]


def _faulty() -> list[bytes]:
    """Bodies that are refused, and take long to be read, or for all that is wrong with them to be found."""
    many = (STRUCTURES_MAX - 10) // 2
    fields = ",".join(f'"k{number}":1' for number in range(18_000))
    return [
        b'{"charges":[' + b",".join([b"{}"] * 2 * many) + b"]}",
        b'{"charges":[' + b",".join([b'{"mechanism":{"kind":"x"}}'] * many) + b"]}",
        f'{{"count":1,"mechanism":{{"kind":"gaussian","noise_multiplier":1,{fields}}}}}'.encode(),
        f"{{{fields}}}".encode(),
        b"[" + b",".join([b"[" * 20 + b"]" * 20] * (STRUCTURES_MAX // 20 - 1)) + b"]",
        b"[" + b",".join([b"1"] * 49_000) + b"]",
        b'{"count":1,"mechanism":{"kind":"gaussian","noise_multiplier":1.' + b"1" * 200_000 + b"}}",
        b'{"count":' + b"9" * 4_000 + b"}",
    ]


def _events() -> bytes:
    """A plan of many events within each other."""
    event: dict = {"class_name": "GaussianDpEvent", "noise_multiplier": 1.5}
    for number in range(20):
        event = {"class_name": "ComposedDpEvent", "events": [event, *_leaves(number)]}
    return _json({"dp_event": event})


def _leaves(number: int) -> list[dict]:
    return [{"class_name": "GaussianDpEvent", "noise_multiplier": 1 + number + one / 97} for one in range(12)]

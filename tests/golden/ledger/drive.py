"""The commands of a golden ledger: every type of entry, and each thing that a later version refuses.

`python -m tests.golden.ledger.drive FILE` runs them on the version that is checked out and writes the ledger,
byte for byte. The files beside this one were written so, each by the version of its format; they never change.
"""

# ruff: noqa: E501 (a table: one call per line)

import contextlib
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from odometer_accountant.errors import OdometerError
from odometer_accountant.ledger.commands import Caller, FreezeCommand
from odometer_accountant.ledger.entries import timestamp
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.api_keys import KeyRing, Role
from odometer_accountant.stores import Head, Store
from odometer_accountant.stores.memory import MemoryStore

ROOT, ADA, BOB = Caller("root", admin=True), Caller("ada", team="red"), Caller("bob", team="blue")
SERVICE = Caller("pipeline", acts_for=frozenset({"*"}))
CALLERS = {"root": ROOT, "ada": ADA, "bob": BOB, "pipeline": SERVICE}
GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 20.0}
STEP = {
    "kind": "poisson_subsampled",
    "base": {"kind": "gaussian", "noise_multiplier": 1.1},
    "sampling_rate": 0.01,
}

OPENED: tuple[dict[str, Any], ...] = (
    {
        "name": "plain",
        "unit": "person",
        "adjacency": "add_remove",
        "delta": 1e-6,
        "budgets": [
            {"name": "life", "kind": "approximate", "epsilon": 8, "delta": 1e-6, "reserved": {"red": 0.25}},
            {"name": "daily", "kind": "zcdp", "rho": 0.5, "window": "day", "scope": "principal/ada"},
            {"name": "team", "kind": "renyi", "order": 8, "epsilon": 6, "scope": "team/red"},
        ],
    },
    {
        "name": "trained",
        "unit": "record",
        "adjacency": "zero_out",
        "delta": 1e-5,
        "delta_add": 0,
        "workload": [{"mechanism": STEP, "count": 1000}],
        "budgets": [{"name": "run", "kind": "approximate", "epsilon": 4, "delta": 1e-5}],
    },
    {
        "name": "strict",
        "unit": "person",
        "adjacency": "replace_one",
        "delta": 1e-6,
        "budgets": [
            {"name": "pure", "kind": "pure", "epsilon": 5},
            {"name": "week", "kind": "pure", "epsilon": 2, "window": "week"},
        ],
    },
    {
        "name": "parts",
        "unit": "person",
        "adjacency": "add_remove",
        "delta": 1e-6,
        "composition": "by_partition",
        "partitions": ["eu"],
        "budgets": [{"name": "each", "kind": "zcdp", "rho": 1, "scope": "partition/*"}],
    },
    {
        "name": "phones",
        "unit": "device",
        "adjacency": "replace_one",
        "delta": 1e-6,
        "composition": "by_unit",
        "shards": 2,
        "budgets": [{"name": "each", "kind": "pure", "epsilon": 3, "scope": "unit/*"}],
    },
    {"name": "counted", "unit": "person", "adjacency": "add_remove", "delta": 1e-6, "odometer_only": True},
)

Call = tuple[str, list[Any], str]
"""A method of the accountant, its arguments without the caller, and who calls."""

CALLS: tuple[Call, ...] = (
    ("charge", ["plain", {"mechanism": GAUSSIAN, "count": 3}, "k1"], "ada"),
    ("charge", ["plain", {"charges": [{"mechanism": GAUSSIAN, "count": 1}, {"mechanism": {"kind": "laplace", "scale_over_sensitivity": 50.0}, "count": 2}]}, "k2"], "bob"),
    ("charge", ["plain", {"mechanism": GAUSSIAN, "count": 1, "principal": "carol", "adjacency": "add_remove"}, "k3"], "pipeline"),
    ("charge", ["plain", {"mechanism": GAUSSIAN, "count": 1, "group": {"name": "sweep-1", "runs": 4}}, "k4"], "ada"),
    ("charge", ["plain", {"mechanism": {"kind": "approximate", "epsilon": 0.01, "delta": 1e-9}, "count": 1}, "k5"], "bob"),
    ("derive", ["plain", {"parent": 2, "description": "a histogram"}, "k6"], "ada"),
    ("hold", ["plain", {"mechanism": GAUSSIAN, "count": 10, "expires_in_s": 86_400}, "h1"], "ada"),
    ("hold", ["plain", {"mechanism": GAUSSIAN, "count": 5, "expires_in_s": 31_000_000}, "h2"], "ada"),
    ("hold", ["plain", {"charges": [{"mechanism": {"kind": "pate_lnmax", "gamma": 0.05}, "count": 3}, {"mechanism": {"kind": "approximate", "epsilon": 0, "delta": 1e-9}, "count": 1}, {"mechanism": {"kind": "gaussian", "noise_multiplier": 50.0}, "count": 1}], "expires_in_s": 86_400}, "h3"], "bob"),
    ("settle", ["plain", "@h1", {"used": 4}], "ada"),
    ("settle", ["plain", "@h3", {"used": [2, 1, 1], "sanitised": {"curves": [{"kind": "renyi_curve", "orders": [2, 8192], "epsilons": [0.0001, 0.3]}, None, None], "failure_probability": 1e-9}}], "bob"),
    ("open_session", ["plain", {"session": {"kind": "sparse_vector", "epsilon_threshold": 0.01, "epsilon_answers": 0.02, "max_above": 3}}, "s1"], "ada"),
    ("answer_session", ["plain", "@s1", {"above": True}, "a1"], "ada"),
    ("open_session", ["plain", {"session": {"kind": "sparse_vector", "epsilon_threshold": 0.01, "epsilon_answers": 0.02, "max_above": 2}}, "s2"], "bob"),
    ("close_session", ["plain", "@s2"], "bob"),
    ("add_budget", ["plain", {"name": "curious", "kind": "gdp", "mu": 1.5, "scope": "principal/bob"}], "root"),
    ("charge", ["trained", {"mechanism": STEP, "count": 100}, "k1"], "ada"),
    ("hold", ["trained", {"mechanism": STEP, "count": 100, "expires_in_s": 31_000_000}, "h1"], "ada"),
    ("charge", ["strict", {"mechanism": {"kind": "pure", "epsilon": 0.1}, "count": 3}, "k1"], "ada"),
    ("charge", ["strict", {"mechanism": {"kind": "exponential", "epsilon": 0.5}, "count": 1}, "k2"], "ada"),
    ("charge", ["strict", {"mechanism": {"kind": "report_noisy_max", "noise": "laplace", "epsilon": 0.5}, "count": 1}, "k3"], "bob"),
    ("charge", ["parts", {"mechanism": GAUSSIAN, "count": 1, "partitions": ["eu"]}, "k1"], "ada"),
    ("add_partitions", ["parts", {"partitions": ["us", "asia"]}], "root"),
    ("charge", ["parts", {"mechanism": GAUSSIAN, "count": 2, "partitions": ["us", "asia"]}, "k2"], "bob"),
    ("charge", ["parts", {"mechanism": GAUSSIAN, "count": 1, "partitions": "all"}, "k3"], "bob"),
    ("charge", ["phones", {"mechanism": {"kind": "randomized_response", "epsilon": 1.0, "k": 2}, "count": 1, "units": ["phone-1"]}, "k1"], "ada"),
    ("charge", ["phones", {"mechanism": {"kind": "randomized_response", "epsilon": 0.5, "k": 2}, "count": 1, "units": ["phone-2"]}, "k2"], "ada"),
    ("charge", ["phones", {"mechanism": {"kind": "randomized_response", "epsilon": 0.5, "k": 2}, "count": 1, "units": ["phone-3"]}, "k3"], "ada"),
    ("charge", ["counted", {"mechanism": {"kind": "non_private", "what": "raw counts"}, "count": 1}, "k1"], "ada"),
    # What a later version refuses: it stays readable, and a retry is answered.
    ("charge", ["counted", {"mechanism": {"kind": "renyi_curve", "orders": [14, 64], "epsilons": [0, 1e6]}, "count": 1_000_000_000}, "bad-curve"], "ada"),
    ("charge", ["counted", {"mechanism": {"kind": "renyi_curve", "orders": [2, 3, 4], "epsilons": [1.0, 1.9, 1.95]}, "count": 1}, "not-convex"], "ada"),
    ("charge", ["counted", {"mechanism": {"kind": "composed", "mechanisms": [{"kind": "renyi_curve", "orders": [2, 3], "epsilons": [0, 1]}, GAUSSIAN], "counts": [2, 1]}, "count": 1}, "bad-part"], "ada"),
    ("charge", ["counted", {"mechanism": {"kind": "non_private", "what": "hidden\u200bmark"}, "count": 1}, "hidden-text"], "ada"),
    ("derive", ["counted", {"parent": 2, "description": "a\u200bzero width"}, "hidden-words"], "ada"),
    ("charge", ["counted", {"mechanism": GAUSSIAN, "count": 1, "principal": "service"}, "as-service"], "pipeline"),
    ("charge", ["counted", {"mechanism": {"kind": "pure", "epsilon": 1e-300}, "count": 1}, "tiny"], "ada"),
    ("hold", ["counted", {"charges": [{"mechanism": {"kind": "pate_lnmax", "gamma": 0.05}, "count": 3}, {"mechanism": {"kind": "approximate", "epsilon": 0, "delta": 1e-9}, "count": 1}, {"mechanism": {"kind": "pure", "epsilon": 0}, "count": 1}], "expires_in_s": 31_000_000}, "pure-zero"], "bob"),
    ("settle", ["counted", "@pure-zero", {"used": [3, 1, 1], "sanitised": {"curves": [{"kind": "renyi_curve", "orders": [2, 8192], "epsilons": [0.0001, 0.3]}, None, None], "failure_probability": 1e-9}}], "bob"),
)  # fmt: skip

LOWERED = {"kind": "zcdp", "rho": 0.25, "window": "day", "scope": "principal/ada"}
RAISED = {"kind": "renyi", "order": 8, "epsilon": 9, "scope": "team/red"}


class Clock:
    """A clock that a test moves: each call is a second later than the one before."""

    def __init__(self, start: str = "2026-03-01T23:50:00.000000Z") -> None:
        self.moment = datetime.fromisoformat(start)

    def __call__(self) -> str:
        return timestamp(self.moment.astimezone(UTC))

    def tick(self, seconds: float = 1) -> None:
        self.moment += timedelta(seconds=seconds)


def run(accountant: Accountant, clock: Clock, *, refused: bool = False) -> Iterator[str]:
    """All commands, in order; each call and its answer as a line that tells how to make it again.

    refused: go on after a call that this version refuses, and say so.
    """
    called: dict[tuple[str, str], str] = {}
    for document in OPENED:
        clock.tick()
        accountant.create_dataset(document, "root")
    for place, (method, arguments, who) in enumerate(CALLS):
        clock.tick(1200 if place % 10 == 9 else 1)
        given = [
            called.get((arguments[0], one[1:]), "none") if str(one).startswith("@") else one
            for one in arguments
        ]
        caller: Caller | str = who if method.startswith("add_") else CALLERS[who]
        try:
            answer = getattr(accountant, method)(*given, caller)
        except OdometerError as error:
            if not refused:
                raise
            yield json.dumps({"method": method, "arguments": given, "who": who, "refused": error.code})
            continue
        document = answer[0] if isinstance(answer, tuple) else answer
        if method == "hold":
            called[arguments[0], arguments[-1]] = document["hold"]["id"]
        if method == "open_session":
            called[arguments[0], arguments[-1]] = document["session"]["id"]
        said = {name: document.get(name) for name in ("sequence", "hash", "left")}
        if method.endswith("_session") and document.get("receipt"):
            said = {name: document["receipt"].get(name) for name in ("sequence", "hash", "left")}
        yield json.dumps({"method": method, "arguments": given, "who": who, "said": said}, sort_keys=True)
    for budget, body in (("daily", LOWERED), ("team", RAISED)):
        clock.tick()
        tag = next(one["etag"] for one in accountant.budgets("plain")["items"] if one["name"] == budget)
        accountant.change_budget("plain", budget, {"name": budget, **body}, tag, "root")
    accountant.close_dataset("trained", "root")
    state = accountant.state("counted")
    accountant._wait("counted", FreezeCommand(Head(state.head.sequence + 7, "ab" * 32)))
    accountant.unfreeze("counted", {"reason": "restored from a backup"}, "root")
    tag = accountant.budgets("phones")["items"][0]["etag"]
    higher = {"name": "each", "kind": "pure", "epsilon": 4, "scope": "unit/*"}
    accountant.change_budget("phones", "each", higher, tag, "root")
    answer = {"kind": "randomized_response", "epsilon": 0.5, "k": 2}
    accountant.charge("phones", {"mechanism": answer, "count": 1, "units": ["phone-1"]}, "k4", ADA)
    for number in range(130):  # past a checkpoint of totals
        clock.tick()
        accountant.charge("counted", {"mechanism": GAUSSIAN, "count": 1}, f"more-{number}", ADA)


def keys(store: Store) -> None:
    """API keys as they are made and revoked; two of them have one name."""
    ring = KeyRing(store)
    ring.create_first()
    _, _ = ring.create(Role.reader, "ann", "p_root")
    first, _ = ring.create(Role.charger, "ann", "p_root", "red", ["carol", "dave"])
    ring.create(Role.charger, None, "p_root", None, ["*"])
    ring.revoke(first.key, "p_root")


def dump(store: Store) -> Iterator[str]:
    """Every stream: its name, its entries with key and hash, its blobs; then the notes."""
    after = ""
    noted: list[str] = []
    while page := store.streams(after, 100):
        for stream in page:
            yield f"stream {stream}"
            rows = store.entries(stream, 0, 10_000)
            by_sequence = {row.sequence: "-" for row in rows}
            for row in rows:
                entry = json.loads(row.body)
                key = f"{entry.get('by', entry.get('principal'))}/{entry['key']}" if "key" in entry else None
                with contextlib.suppress(KeyError):
                    key = key or {"settled": f"~settled/{entry.get('hold')}", "session_closed": f"~ended/{entry.get('session')}"}[entry["type"]]  # fmt: skip
                if key is not None and [one.sequence for one in store.find(stream, [key]).values()] == [
                    row.sequence
                ]:
                    by_sequence[row.sequence] = key
                noted += [entry["principal"]] if entry["type"] == "key_created" else []
                yield f"entry {by_sequence[row.sequence]} {row.hash} {row.body.decode('ascii')}"
            for name, blob in store.blobs(stream, "", "", 10_000):
                yield f"blob {name} {blob.decode('ascii')}"
        after = page[-1]
    for name, note in store.notes(noted).items():
        yield f"note {name} {note.salt} {note.text}"


def main(path: str) -> None:
    """Write a golden file."""
    store, clock = MemoryStore(), Clock()
    with Accountant(store, clock) as accountant:
        calls = list(run(accountant, clock))
        keys(store)
        lines = [*(f"call {line}" for line in calls), *dump(store)]
    Path(path).write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])

"""Thirty-two callers answer one session at two processes: so many above answers as it takes, each paid."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import four
import httpx
import pytest
from raw import Connection, Reply

from odometer_accountant.ledger.fold import fold
from odometer_accountant.stores import open_store
from odometer_accountant.verify.walk import verify
from odometer_client.keys import new_key

CALLERS = 32
ATTEMPTS = 400
SVT = {"kind": "sparse_vector", "epsilon_threshold": 0.25, "epsilon_answers": 0.25}
RUN = 0.5
"""Pure epsilon of a run."""
PATE = {"kind": "confident_gnmax", "noise_multiplier_check": 100.0, "noise_multiplier_answer": 20.0}


@pytest.fixture(scope="module", params=["redis", "sqlite"])
def two(request: pytest.FixtureRequest) -> Iterator[four.Four]:
    with four.four(request.param) as running:
        yield replace(running, urls=running.urls[:2])


def opened(two: four.Four, name: str, kind: dict[str, Any], epsilon: float = 1e6) -> str:
    """A session on a new dataset: its path."""
    document = {"name": name, "unit": "person", "adjacency": "add_remove", "delta": 1e-6}
    budget = {"name": "life", "kind": "pure", "epsilon": epsilon}
    if kind["kind"] != "sparse_vector":
        budget = {"name": "life", "kind": "zcdp", "rho": 1e6}
    headers = {"Authorization": f"Bearer {two.key}"}
    with httpx.Client(base_url=two.urls[0], headers=headers, timeout=60) as http:
        assert http.post("/v1/datasets", json={**document, "budgets": [budget]}).status_code == 201
        path = f"/v1/datasets/{name}/sessions"
        made = http.post(path, json={"session": kind}, headers={"Idempotency-Key": "open"})
        assert made.status_code == 201, made.text
        return f"{path}/{made.json()['session']['id']}"


def for_certain(connection: Connection, path: str, body: Any, key: str) -> Reply:
    for _ in range(ATTEMPTS):
        reply = connection.post(path, body, key)
        if reply.status != 503:
            return reply
    raise AssertionError(f"unsure {ATTEMPTS} times: {reply}")


def until(what: str, connection: Connection, path: str, body: Any) -> list[Reply]:
    """The replies to answers, each under a key of its own, up to the one that says `what`."""
    replies = []
    for _ in range(ATTEMPTS):
        replies.append(for_certain(connection, path, body, new_key()))
        if said(replies[-1]) == what:
            return replies
    raise AssertionError(f"asked {ATTEMPTS} times, and never {what}: {replies[-1]}")


def said(reply: Reply) -> str:
    return "done" if reply.status == 200 else str(reply.document["type"]).removeprefix("/problems/")


def entries(two: four.Four, name: str) -> list[dict[str, Any]]:
    """The ledger's, once it is verified."""
    with closing(open_store(two.store)) as store:
        findings = [finding for verdict in verify(store, [name]) for finding in verdict.findings]
        rows = store.entries(name, 0, 10_000)
    assert findings == []
    assert fold((row.hash, row.body) for row in rows) is not None
    return [json.loads(row.body) for row in rows]


def test_so_many_above_answers_as_it_takes_are_admitted_and_each_is_paid(two: four.Four) -> None:
    """Everybody answers `above`, without a run, until the session is closed."""
    most = 40
    path = opened(two, "most", {**SVT, "max_above": most}, epsilon=most * RUN)

    def job(one: Connection, _: int) -> list[Reply]:
        return until("session-closed", one, f"{path}/answers", {"above": True})

    replies = [reply for some in two.race(job, CALLERS) for reply in some]
    assert {said(reply) for reply in replies} <= {"done", "session-moved-on", "session-closed"}
    assert sum(said(reply) == "done" for reply in replies) == most
    found = entries(two, "most")
    assert [entry["type"] for entry in found] == ["opened", *["charged"] * most, "session_closed"]
    assert [entry["command"]["session"].get("run") for entry in found[2:-1]] == list(range(1, most))
    assert (found[-1]["run"], found[-1]["above"]) == (most, most)


def test_an_above_answer_of_one_process_is_known_at_the_other_at_once(two: four.Four) -> None:
    """Who has paid for run 2 at one process asks the other about run 1: nothing is allowed in it any more."""
    most = 60
    path = f"{opened(two, 'at-once', {**SVT, 'max_above': most})}/answers"

    def job(one: Connection, number: int) -> list[Reply]:
        done: list[Reply] = []
        run = 1
        with closing(Connection(two.urls[1 - number % 2], two.key)) as other:
            for _ in range(ATTEMPTS):
                reply = for_certain(one, path, {"above": True, "run": run}, new_key())
                if said(reply) == "session-closed":
                    return done
                if said(reply) == "session-moved-on":
                    run = reply.document["run"]
                    continue
                done.append(reply)
                for body in ({"above": False, "run": run}, {"above": True, "run": run}):
                    stale = for_certain(other, path, body, new_key())
                    assert said(stale) in ("session-moved-on", "session-closed"), stale
                run += 1
        raise AssertionError(f"still open after {ATTEMPTS} answers")

    replies = [reply for some in two.race(job, CALLERS) for reply in some]
    assert len(replies) == most
    assert len(entries(two, "at-once")) == most + 2


@pytest.mark.parametrize("fitting", [1, 2, 17])
def test_where_the_budget_ends_first_each_admitted_answer_is_paid(two: four.Four, fitting: int) -> None:
    """Of `fitting` runs the first is paid at the opening: one answer less is admitted, whatever the race."""
    name = f"fitting-{fitting}"
    path = opened(two, name, {**SVT, "max_above": 1000}, epsilon=fitting * RUN)

    def job(one: Connection, _: int) -> list[Reply]:
        return until("budget-exceeded", one, f"{path}/answers", {"above": True})

    replies = [reply for some in two.race(job, CALLERS) for reply in some]
    assert {said(reply) for reply in replies} <= {"done", "session-moved-on", "budget-exceeded"}
    assert sum(said(reply) == "done" for reply in replies) == fitting - 1
    assert len(entries(two, name)) == fitting + 1


def test_checks_and_answers_of_votes_are_each_paid_once(two: four.Four) -> None:
    """Confident-GNMax: half of the callers say below, which is charged too."""
    most = 15
    path = opened(two, "votes", {**PATE, "max_answers": most})

    def job(one: Connection, number: int) -> list[Reply]:
        replies = until("session-closed", one, f"{path}/answers", {"above": number % 4 < 2})
        return [reply for reply in replies if said(reply) == "done"]

    done = [reply for some in two.race(job, CALLERS) for reply in some]
    steps = [entry["command"]["session"] for entry in entries(two, "votes")[1:]]
    assert sum(step.get("above", False) for step in steps) == most
    assert [step.get("run", 0) for step in steps] == list(range(len(steps)))
    assert sorted(reply.document["receipt"]["sequence"] for reply in done) == list(range(3, len(steps) + 2))


def test_one_key_of_all_callers_is_one_answer(two: four.Four) -> None:
    """Each of five keys is sent by all to both processes; the fifth answer is the last one, which is free."""
    path = opened(two, "one-key", {**SVT, "max_above": 5})

    def job(one: Connection, _: int) -> list[Reply]:
        found = []
        for run in range(1, 6):
            body = {"above": True, "run": run}
            reply = for_certain(one, f"{path}/answers", body, f"k{run}")
            assert said(reply) == "done", reply  # each has heard that the run before was paid
            found.append(reply)
        return found

    replies = two.race(job, CALLERS)
    for same in zip(*replies, strict=True):
        assert sum(not reply.document["replayed"] for reply in same) <= 1
    assert len(entries(two, "one-key")) == 7


def test_whoever_closes_amid_the_answers_loses_none_that_was_admitted(two: four.Four) -> None:
    """One caller closes after two answers of its own; what the others were told by then is paid."""
    session = opened(two, "closed", {**SVT, "max_above": 1000})

    def job(one: Connection, number: int) -> list[Reply]:
        if number:
            return until("session-closed", one, f"{session}/answers", {"above": True})
        own: list[Reply] = []
        while len(own) < 2:
            own += until("done", one, f"{session}/answers", {"above": True})[-1:]
        assert said(for_certain(one, f"{session}/close", {}, new_key())) == "done"
        return own

    replies = [reply for some in two.race(job, CALLERS) for reply in some]
    done = [reply for reply in replies if said(reply) == "done"]
    found = entries(two, "closed")
    told = [reply.document["receipt"]["sequence"] for reply in done]
    assert sorted(told) == [entry["seq"] for entry in found[2:-1]]
    assert (found[-1]["type"], found[-1]["above"]) == ("session_closed", len(done))

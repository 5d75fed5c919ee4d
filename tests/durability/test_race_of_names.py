"""Processes that want the same name, or each other's end, at the same moment: one has it, one admin stays."""

import contextlib
import json
import multiprocessing
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from amount import amount

from odometer_accountant.errors import EditConflict, Forbidden, NameTaken
from odometer_accountant.service.api_keys import STREAM, KeyRing, Role
from odometer_accountant.stores import open_store

ROUNDS = amount(5, 2)
PROCESSES = 3


def _make(url: str, start: Barrier, number: int, out: Any) -> None:
    """Want the same names as all the others, in different spellings."""
    store = open_store(url)
    ring, won = KeyRing(store), []
    for round_ in range(ROUNDS):
        start.wait(60)
        name = f"ann {round_}" if number % 2 else f"ANN {round_}"
        with contextlib.suppress(NameTaken):
            won.append((round_, ring.create(Role.charger, name, "root")[0].principal))
    store.close()
    out.put(won)


def _end(url: str, start: Barrier, mine: tuple[str, str], others: list[tuple[str, str]], out: Any) -> None:
    """Take away the place of every other admin, by turns the key and the role."""
    store = open_store(url)
    ring, ended = KeyRing(store), 0
    start.wait(60)
    for number, (key, principal) in enumerate(others):
        with contextlib.suppress(Forbidden):
            if number % 2:
                ring.revoke(key, mine[1])
            else:
                _demote(ring, principal, mine[1])
            ended += 1
    store.close()
    out.put(ended)


def _demote(ring: KeyRing, principal: str, by: str) -> None:
    """As a person does who is told that somebody else changed it meanwhile: read again, and ask again."""
    while True:
        with contextlib.suppress(EditConflict):
            etag = ring.principal(principal)["etag"]
            ring.change_principal(principal, Role.reader, None, (), by, etag)
            return


def _all(target: Any, url: str, more: list[tuple[Any, ...]]) -> list[Any]:
    """What each process puts out."""
    context = multiprocessing.get_context("spawn")
    start, out = context.Barrier(len(more)), context.Queue()
    running = [context.Process(target=target, args=(url, start, *given, out)) for given in more]
    for process in running:
        process.start()
    found = [out.get(timeout=120) for _ in running]
    for process in running:
        process.join(60)
        assert process.exitcode == 0
    return found


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.sqlite"


def test_each_name_is_one_process_s(url: str) -> None:
    """Every name was won once, and the stream says the same."""
    open_store(url).close()
    won = [made for one in _all(_make, url, [(number,) for number in range(PROCESSES)]) for made in one]
    assert sorted(round_ for round_, _ in won) == list(range(ROUNDS))
    store = open_store(url)
    named = [json.loads(row.body) for row in store.entries(STREAM, 0, 1000)]
    assert sorted(entry["principal"] for entry in named) == sorted(principal for _, principal in won)
    assert len({entry["name_claim"] for entry in named}) == ROUNDS
    assert len({entry["names_key"] for entry in named}) == 1
    store.close()


def test_admins_who_end_each_other_leave_one(url: str) -> None:
    """Nobody is locked out, whoever was faster."""
    store = open_store(url)
    ring = KeyRing(store)
    made = [ring.create(Role.admin, None, "root")[0] for _ in range(3)]
    store.close()
    admins = [(one.key, one.principal) for one in made]
    more = [(mine, [one for one in admins if one != mine]) for mine in admins]
    _all(_end, url, more)
    store = open_store(url)
    assert len(KeyRing(store)._register.lasting_admins()) == 1
    store.close()

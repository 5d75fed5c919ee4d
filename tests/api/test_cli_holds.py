"""`odometer hold`, `settle`, `holds`, `unfreeze`; scopes, windows, shares, partitions and units in words."""

import json
import re
from pathlib import Path

import command_line
import pytest
import redis_server
from command_line import Run

from odometer_accountant.ledger.commands import FreezeCommand
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.service.reader import BlockingReply
from odometer_accountant.stores import Head
from odometer_client.testing import serve
from privacy_odometer.cli import parsing

OPENED = ("--unit", "person", "--adjacency", "add_remove", "--delta", "1e-6")

TIGHTEST = "the least left is shown. For each partition: odometer status visits --scope partition/NAME"


def runner(url: str, **environment: str) -> Run:
    return command_line.runner(COLUMNS="160", ODOMETER_URL=url, **environment)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


@pytest.fixture
def run(url: str) -> Run:
    """Commands on a ledger of their own with the dataset `adult`: ε 1, pure."""
    run = runner(url)
    run("dataset", "create", "adult", *OPENED, "--budget", "life:pure:epsilon=1")
    return run


def freeze(url: str, dataset: str) -> None:
    """As when history that a process saw is gone."""
    with Accountant.open(url) as accountant:
        waiter = BlockingReply()
        accountant.writer.submit(dataset, FreezeCommand(Head(9, "gone")), waiter, None)
        waiter.wait()


# -- holds


def hold_id(said: str) -> str:
    """The hold's id, in what the command that made it said."""
    (found,) = re.findall(r"hold +(\S+), expires", said)
    return str(found)


def test_a_hold_is_listed_and_settled_for_what_was_used(run: Run) -> None:
    held = run("hold", "adult", "pure", "epsilon=0.1", "-n", "5", "--expires-in-s", "1000").stdout
    assert "held     adult, entry 2" in held
    name = hold_id(held)
    assert name.startswith("2.")
    assert ", expires 20" in held
    assert "5 × pure epsilon=0.1" in run("holds", "adult").stdout
    shown = run("status", "adult").stdout
    assert "1 open hold" in shown
    assert "life: 0.5 of the spent amount is held" in shown
    assert "held: pure ε 0.5" in shown
    assert "says, such as 12." in run("settle", "adult", "2", "3", status=1).stderr
    assert f"hold {name}: 3 of 5 used, entry 3" in run("settle", "adult", name, "3").stdout
    assert "settled before, with the same numbers" in run("settle", "adult", name, "3").stdout
    assert "once and for all" in run("settle", "adult", name, "4", status=1).stderr
    assert "No hold is open." in run("holds", "adult").stdout
    assert '"spent": 0.3' in run("dataset", "show", "adult", "--format", "json").stdout


def test_a_hold_of_a_list_is_settled_by_a_number_for_each(run: Run) -> None:
    one = {"mechanism": {"kind": "pure", "epsilon": 0.1}, "count": 2}
    held = run("hold", "adult", "--json", json.dumps([one, one]), "--expires-in-s", "1000").stdout
    assert "1 of 2, 0 of 2 used" in run("settle", "adult", hold_id(held), "1", "0").stdout


def test_the_same_key_is_the_same_hold(run: Run) -> None:
    asked = ("hold", "adult", "pure", "epsilon=0.1", "--expires-in-s", "1000", "--idempotency-key", "k")
    run(*asked)
    assert "held before, under the same key" in run(*asked).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("hold", "adult", "pure", "epsilon=0.1"),
        ("hold", "adult", "pure", "epsilon=0.1", "--expires-in-s", "0"),
        ("settle", "adult", "2"),
        ("settle", "adult", "2", "-1"),
        ("unfreeze", "adult"),
        ("charge", "adult", "pure", "epsilon=0.1", "--group", "lr"),
        ("charge", "adult", "pure", "epsilon=0.1", "--runs", "2"),
        ("charge", "adult", "pure", "epsilon=0.1", "--partition", "eu", "--all-partitions"),
        ("charge", "adult", "pure", "epsilon=0.1", "--unit", "a", "--group", "lr", "--runs", "2"),
        ("status", "--scope", "group/lr"),
        ("budget", "add", "adult", "b:zcdp:rho=1,reserved=ads"),
    ],
)
def test_wrong_usage_is_status_2_and_changes_nothing(run: Run, arguments: tuple[str, ...]) -> None:
    run(*arguments, status=2)
    assert json.loads(run("dataset", "show", "adult", "--format", "json").stdout)["sequence"] == 1


# -- budgets in words


def test_a_budget_says_its_scope_window_and_shares() -> None:
    document = {
        "name": "b",
        "kind": "pure",
        "epsilon": 1,
        "scope": "unit/*",
        "window": "day",
        "reserved": {"ads": 0.25, "research": 0.5},
    }
    text = "b:pure:epsilon=1,scope=unit/*,window=day,reserved=ads:0.25,reserved=research:0.5"
    assert parsing.budget(text) == document
    assert parsing.budget_text(document) == text


def test_a_changed_budget_keeps_its_scope_window_and_shares(run: Run) -> None:
    run("budget", "add", "adult", "daily:pure:epsilon=0.5,window=day,scope=principal/*")
    run("budget", "set", "adult", "daily", "epsilon=0.25")
    run("budget", "set", "adult", "life", "reserved=ads:0.5")
    run("budget", "set", "adult", "life", "epsilon=2")
    shown = run("status", "adult").stdout
    assert "ε 0.25 each day" in shown
    assert "daily (each principal)" in shown
    assert "each its own" in shown
    assert "daily starts anew at" in shown
    assert "ε 2, reserved ads 0.5" in shown


def test_a_full_window_says_when_it_starts_anew(run: Run) -> None:
    run("budget", "add", "adult", "daily:pure:epsilon=0.1,window=day,scope=principal/*")
    refused = run("charge", "adult", "pure", "epsilon=0.2", status=1).stderr
    assert "daily (pure, principal embedded, within one day): limit 0.1" in refused
    assert "it starts anew at" in refused
    assert "00:00:00Z" in refused


# -- groups, partitions, units, teams


def test_a_group_of_runs_is_charged_at_once(run: Run) -> None:
    run("charge", "adult", "pure", "epsilon=0.1", "-n", "2", "--group", "lr", "--runs", "3")
    shown = run("status", "adult", "--scope", "group/lr").stdout
    assert "the odometer of group lr" in shown
    assert "if_stopped_now: ε 0.6" in shown
    assert "6 × pure epsilon=0.1, 3 runs of lr" in run("ledger", "adult").stdout


def test_partitions_are_declared_charged_and_added(run: Run) -> None:
    parts = ("--composition", "by_partition", "--partition", "eu", "--partition", "us")
    run("dataset", "create", "visits", *OPENED, *parts, "--budget", "each:pure:epsilon=1,scope=partition/*")
    run("charge", "visits", "pure", "epsilon=0.75", "--partition", "eu")
    run("charge", "visits", "pure", "epsilon=0.5", "--all-partitions", status=1)
    assert run("charge", "visits", "pure", "epsilon=0.25", "--all-partitions").stdout.count(TIGHTEST) == 1
    both = ("check", "visits", "pure", "epsilon=0", "--partition", "eu", "--partition", "us")
    assert run(*both).stdout.count(TIGHTEST) == 1
    assert TIGHTEST not in run(*both[:-2]).stdout
    assert "eu, us, asia" in run("dataset", "partition", "add", "visits", "asia").stdout
    assert "ε 1 at" in run("status", "visits", "--scope", "partition/eu").stdout
    assert "ε 0.25 at" in run("status", "visits", "--scope", "partition/asia").stdout
    lines = run("ledger", "visits").stdout
    assert "charged 1 × pure epsilon=0.75, on eu" in lines
    assert "charged 1 × pure epsilon=0.25, on all partitions" in lines
    assert "partitions added: asia" in lines


def test_units_are_charged_by_shard_with_a_receipt_for_each(run: Run) -> None:
    run(
        "dataset",
        "create",
        "local",
        *OPENED,
        "--composition",
        "by_unit",
        "--shards",
        "2",
        "--budget",
        "each:pure:epsilon=1,scope=unit/*",
    )
    units = [f"--unit=u{number}" for number in range(8)]
    said = run("charge", "local", "pure", "epsilon=0.75", *units, "--idempotency-key", "k").stdout
    assert said.count("charged  local") == 2
    again = run("charge", "local", "pure", "epsilon=0.75", *units, "--idempotency-key", "k").stdout
    assert again.count("not a new one") == 2
    assert "ε 0.75 at" in run("status", "local", "--scope", "unit/u3").stdout
    assert "--scope unit/" in run("status", "local").stdout
    refused = run("charge", "local", "pure", "epsilon=0.75", "--unit", "u3", status=1).stderr
    assert "unit u3" in refused
    assert "kept in 2 shards" in run("check", "local", "pure", "epsilon=0.1", *units, status=1).stderr


def test_keys_of_teams_and_for_others_in_the_store_and_through_the_service(url: str, run: Run) -> None:
    options = ("--team", "ads", "--acts-for", "alice", "--store", url, "--format", "json")
    made = json.loads(run("key", "create", "charger", *options).stdout)
    assert (made["team"], made["acts_for"]) == ("ads", ["alice"])
    assert re.search(r"charger +ads .*in use +alice", run("key", "list", "--store", url).stdout)
    run("key", "create", "charger", "--team", "No Slug", "--store", url, status=1)
    with serve(url) as service:
        ads = runner(service.url, ODOMETER_KEY=made["token"])
        said = ads("charge", "adult", "pure", "epsilon=0.1", "--principal", "alice").stdout
        assert f"for      alice, requested by {made['principal']}" in said
        ads("charge", "adult", "pure", "epsilon=0.1", "--principal", "bob", status=1)
        admin_token = json.loads(
            runner(url)("key", "create", "admin", "--store", url, "--format", "json").stdout
        )["token"]
        admin = runner(service.url, ODOMETER_KEY=admin_token)
        assert "acts for   *" in admin("key", "create", "charger", "--acts-for", "*").stdout
        assert "ε 0.1 at" in admin("status", "adult", "--scope", "team/ads").stdout


# -- frozen


def test_a_frozen_dataset_is_said_to_be_so_and_goes_on_after_a_persons_word(url: str, run: Run) -> None:
    freeze(url, "adult")
    assert "frozen" in run("status").stdout
    assert "odometer unfreeze" in run("charge", "adult", "pure", "epsilon=0.1", status=3).stderr
    assert "frozen: entry 9" in run("ledger", "adult", "--last", "1").stdout
    assert "adult" in run("unfreeze", "adult", "--reason", "the backup is as old").stdout
    assert "unfrozen without the lost entries: the backup is as old" in run("ledger", "adult").stdout
    run("charge", "adult", "pure", "epsilon=0.1")
    assert "is not frozen" in run("unfreeze", "adult", "--reason", "again", status=1).stderr


def test_a_frozen_dataset_goes_on_through_the_service_too(url: str, run: Run) -> None:
    del run
    freeze(url, "adult")
    made = runner(url)("key", "create", "admin", "--store", url, "--format", "json").stdout
    with serve(url) as service:
        admin = runner(service.url, ODOMETER_KEY=json.loads(made)["token"])
        admin("charge", "adult", "pure", "epsilon=0.1", status=3)
        admin("unfreeze", "adult", "--reason", "looked at it")
        admin("charge", "adult", "pure", "epsilon=0.1")


# -- Redis


def test_a_ledger_in_redis_is_worked_on_without_a_service(tmp_path: Path) -> None:
    with redis_server.server(tmp_path) as redis:
        run = runner(redis.url, ODOMETER_STORE=redis.url)
        run("dataset", "create", "adult", *OPENED, "--budget", "life:pure:epsilon=1")
        held = run("hold", "adult", "pure", "epsilon=0.1", "-n", "5", "--expires-in-s", "1000").stdout
        run("settle", "adult", hold_id(held), "1")
        assert "10.0 %" in run("status", "adult").stdout
        assert "ok      adult: 3 entries" in run("verify").stdout
        run("key", "create", "reader")
        assert "reader" in run("key", "list").stdout


def test_a_redis_that_does_not_answer_is_status_3_and_its_password_is_not_said() -> None:
    result = runner("redis://:swordfish@127.0.0.1:1")("status", status=3)
    assert "swordfish" not in result.output
    assert "Traceback" not in result.output

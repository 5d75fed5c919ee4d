"""The command line, over ledgers of this machine and over a real service in a process of its own."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command_line import Run, runner

from odometer_client import Client, OutcomeUnknown
from odometer_client.errors import NotFound
from odometer_client.testing import Service, serve
from odometer_client.wording import mechanism_words
from privacy_odometer.cli import parsing

ROOT = Path(__file__).resolve().parents[2]
ODOMETER = [sys.executable, "-m", "privacy_odometer"]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.sqlite'}"


@pytest.fixture
def run(url: str) -> Run:
    """Commands on a ledger of their own with the dataset `adult`: ε 1, pure."""
    run = runner(ODOMETER_URL=url, ODOMETER_STORE=url)
    opened = ("--unit", "person", "--adjacency", "add_remove", "--delta", "1e-6")
    run("dataset", "create", "adult", *opened, "--budget", "life:pure:epsilon=1")
    return run


# -- words


def test_points_go_one_level_down() -> None:
    asked = ["base.kind=gaussian", "base.noise_multiplier=1.1", "sampling_rate=0.01"]
    assert parsing.mechanism("poisson_subsampled", asked) == {
        "kind": "poisson_subsampled",
        "base": {"kind": "gaussian", "noise_multiplier": 1.1},
        "sampling_rate": 0.01,
    }


def test_a_mechanism_as_words_is_the_same_mechanism() -> None:
    document = {"kind": "x", "orders": [2, 4.5], "base": {"kind": "y", "z": 1e-9}}
    kind, *parameters = mechanism_words(document).split(" ", 1)[0], *mechanism_words(document).split(" ")[1:]
    joined = " ".join(parameters).replace("[2, 4.5]", "[2,4.5]").split(" ")
    assert parsing.mechanism(kind, joined) == document


@pytest.mark.parametrize(
    ("text", "value"),
    [("10", 10), ("1e-5", 1e-5), (".5", 0.5), ("1.", 1.0), ("0", 0), ("+2", 2), ("0.1", 0.1), ("1.10", 1.1)],
)
def test_numbers_are_kept(text: str, value: float) -> None:
    assert parsing.number(text) == value


@pytest.mark.parametrize(
    "text", ["0.12345678901234567890", "1e-400", "1e400", "nan", "inf", "1,5", "", "0x1"]
)
def test_numbers_that_would_change_are_refused(run: Run, text: str) -> None:
    result = run("status", "adult", "--delta", text, status=2)
    assert "Traceback" not in result.output


def test_lists_and_text_as_values() -> None:
    assert parsing.assignments(["orders=2,4", 'what="7"', "note=a,b"]) == {
        "orders": [2, 4],
        "what": "7",
        "note": "a,b",
    }


def test_a_budget_in_one_word() -> None:
    assert parsing.budget("life:approximate:epsilon=3,delta=1e-5") == {
        "name": "life",
        "kind": "approximate",
        "epsilon": 3,
        "delta": 1e-5,
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("charge", "adult"),
        ("charge", "adult", "pure", "epsilon"),
        ("charge", "adult", "pure", "epsilon=1", "epsilon=1"),
        ("charge", "adult", "pure", "a=1", "a.b=1"),
        ("charge", "adult", "pure", "epsilon=0.1", "--count", "0"),
        ("charge", "adult", "--json", "{"),
        ("charge", "adult", "--json", '{"kind": "pure", "epsilon": NaN}'),
        ("charge", "adult", "--json", '{"kind": "pure", "kind": "zcdp"}'),
        ("charge", "adult", "--json", '[{"mechanism": {"kind": "pure", "epsilon": 0.1}}]'),
        ("convert", "pure", "epsilon=1"),
        ("ledger", "adult", "--json", "--csv"),
        ("budget", "add", "adult", "life"),
    ],
)
def test_wrong_usage_is_status_2_and_changes_nothing(run: Run, arguments: tuple[str, ...]) -> None:
    run(*arguments, status=2)
    assert json.loads(run("dataset", "show", "adult", "--format", "json").stdout)["sequence"] == 1


# -- datasets, charges, readings


def test_a_charge_prints_its_receipt(run: Run) -> None:
    result = run("charge", "adult", "pure", "epsilon=0.25", "--count", "2")
    assert "adult, entry 2" in result.stdout
    assert "0.5" in result.stdout


def test_one_release_unless_a_count_is_given(run: Run) -> None:
    run("charge", "adult", "pure", "epsilon=0.25")
    entry = json.loads(run("ledger", "adult", "--last", "1", "--json").stdout)["entry"]
    assert entry["command"] == {"charges": [{"count": 1, "mechanism": {"kind": "pure", "epsilon": "0.25"}}]}


def test_a_refusal_says_which_budget_and_what_would_fit(run: Run) -> None:
    result = run("charge", "adult", "pure", "epsilon=0.4", "-n", "3", status=1)
    assert "life (pure): limit 1, spent 0, with this 1.2, short by 0.2" in result.stderr
    assert "a count of at most 2" in result.stderr
    assert "Release nothing." in result.stderr
    assert result.stdout == ""


def test_a_wrong_field_is_named(run: Run) -> None:
    result = run("charge", "adult", "pure", "epsilon=-1", status=1)
    assert "epsilon: must be at least 0\n" in result.stderr


def test_a_list_in_json_is_charged_all_or_nothing(run: Run) -> None:
    one = {"mechanism": {"kind": "pure", "epsilon": 0.3}, "count": 1}
    run("charge", "adult", "--json", "-", input=json.dumps([one, one]))
    result = run("charge", "adult", "--json", json.dumps([one, one]), status=1)
    assert "the first 1 of the list" in result.stderr
    assert '"spent": 0.6' in run("dataset", "show", "adult", "--format", "json").stdout


def test_the_same_key_is_the_same_charge(run: Run) -> None:
    run("charge", "adult", "pure", "epsilon=0.3", "--idempotency-key", "k")
    result = run("charge", "adult", "pure", "epsilon=0.3", "--idempotency-key", "k")
    assert "not a new one" in result.stdout
    run("charge", "adult", "pure", "epsilon=0.2", "--idempotency-key", "k", status=1)


def test_check_answers_with_its_status_and_charges_nothing(run: Run) -> None:
    assert "would fit" in run("check", "adult", "pure", "epsilon=1").stdout
    assert "would be refused" in run("check", "adult", "pure", "epsilon=2", status=1).stdout
    assert json.loads(run("dataset", "show", "adult", "--format", "json").stdout)["sequence"] == 1


def test_status_shows_budgets_bars_and_what_readings_mean(run: Run) -> None:
    run("charge", "adult", "pure", "epsilon=0.5")
    shown = run("status").stdout
    assert "██████████░░░░░░░░░░   50.0 %" in shown
    assert "if_stopped_now: ε 0.5 at δ 1e-06 [1]" in shown
    assert "[1] Always, for whatever rule made you stop here" in shown


@pytest.mark.parametrize(
    ("budget", "promised"),
    [
        ("pure:epsilon=0.5", "0.5-DP"),
        ("approximate:epsilon=1,delta=1e-6", "(1, 1e-06)-DP"),
        ("zcdp:rho=0.5", "0.5-zCDP"),
        ("renyi:order=8,epsilon=2", "(8, 2)-RDP"),
        ("gdp:mu=1", "1-GDP"),
    ],
)
def test_a_guarantee_is_shown_in_numbers(run: Run, budget: str, promised: str) -> None:
    """As the dashboard shows it, and not as the letters of a definition."""
    opened = ("--unit", "person", "--adjacency", "add_remove", "--delta", "1e-6")
    run("dataset", "create", "other", *opened, "--budget", f"life:{budget}")
    assert f"guarantee of life: {promised} for all entries" in " ".join(run("status", "other").stdout.split())


def test_what_is_kept_of_delta_is_said_with_its_name(run: Run) -> None:
    shown = " ".join(run("dataset", "show", "adult").stdout.split())
    assert "δ 1e-06; 1e-07 of it is kept for charges stated as (ε, δ) (delta_add)" in shown


@pytest.mark.parametrize("columns", ["20", "40", "80", "200"])
def test_status_never_cuts_a_number(url: str, run: Run, columns: str) -> None:
    run("charge", "adult", "pure", "epsilon=0.123457")
    shown = runner(ODOMETER_URL=url, COLUMNS=columns)("status", "adult").stdout
    assert "0.123457" in shown
    assert "0.876543" in shown
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= int(columns)


def test_a_terminal_without_our_letters_still_gets_its_numbers(url: str, run: Run) -> None:
    environment = {**os.environ, "ODOMETER_URL": url, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    shown = subprocess.run(
        [*ODOMETER, "status"], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert "####" not in shown.stdout
    assert "0.0 %" in shown.stdout


def test_names_are_not_markup(run: Run) -> None:
    opened = ("--adjacency", "add_remove", "--delta", "1e-6", "--odometer-only")
    assert "unit [red]x[/red]" in run("dataset", "create", "other", "--unit", "[red]x[/red]", *opened).stdout


def test_a_budget_is_added_and_changed(run: Run) -> None:
    run("budget", "add", "adult", "more:zcdp:rho=0.5")
    result = run("budget", "set", "adult", "more", "rho=0.75")
    assert "raised from 0.5 to 0.75" in " ".join(result.stdout.split())
    run("budget", "set", "adult", "none", "rho=1", status=1)


def test_a_closed_dataset_takes_no_charges(run: Run) -> None:
    run("dataset", "close", "adult", status=1, input="n\n")
    run("dataset", "close", "adult", "--yes")
    assert "closed" in run("charge", "adult", "pure", "epsilon=0.1", status=1).stderr
    assert "What would fit" not in run("check", "adult", "pure", "epsilon=0.1", status=1).stdout
    assert "closed" in run("dataset", "list").stdout


def test_the_ledger_is_paged(run: Run) -> None:
    for _ in range(4):
        run("charge", "adult", "pure", "epsilon=0.1")
    first = run("ledger", "adult", "--limit", "2").stdout
    assert "More: --after 2" in first
    rest = run("ledger", "adult", "--after", "2", "--csv").stdout.splitlines()
    assert rest[0] == "sequence,time,type,principal,key,what,hash"
    assert [line.split(",")[0] for line in rest[1:]] == ["3", "4", "5"]
    every = [
        json.loads(line)["sequence"] for line in run("ledger", "adult", "--all", "--json").stdout.splitlines()
    ]
    assert every == [1, 2, 3, 4, 5]


def test_convert_and_mechanisms_need_no_service() -> None:
    run = runner(ODOMETER_URL="memory://")
    assert "fixed_plan" in run("convert", "gaussian", "noise_multiplier=10", "--delta", "1e-6").stdout
    assert "sampling_rate: q" in run("mechanisms", "poisson_subsampled").stdout
    assert "did you mean laplace?" in run("mechanisms", "lapalce", status=1).stderr
    assert "did you mean gaussian?" in run("convert", "gausian", "--delta", "1e-6", status=1).stderr


def test_a_ledger_is_not_made_by_looking(tmp_path: Path) -> None:
    missing = tmp_path / "typo.sqlite"
    run = runner(ODOMETER_URL=f"sqlite:///{missing}", ODOMETER_STORE=f"sqlite:///{missing}")
    for command in (("status",), ("charge", "adult", "pure", "epsilon=1"), ("verify",), ("key", "list")):
        assert "there is no ledger at" in run(*command, status=2).stderr
    assert not missing.exists()


def test_an_unreachable_service_is_status_3_and_the_key_is_shown() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    run = runner(ODOMETER_URL=f"http://127.0.0.1:{port}")
    result = run("charge", "adult", "pure", "epsilon=1", status=3)
    assert "Release nothing" in result.stderr
    assert "--idempotency-key 0" in result.stderr


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), OutcomeUnknown("no answer", "mine")])
def test_an_unknown_outcome_is_status_3_and_says_how_to_ask_again(
    run: Run, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(Client, "charge", fail)
    result = run("charge", "adult", "pure", "epsilon=0.1", "--idempotency-key", "mine", status=3)
    assert "Release nothing" in result.stderr
    assert "--idempotency-key mine" in result.stderr


def test_a_key_is_no_formula_in_a_spreadsheet(run: Run) -> None:
    run("charge", "adult", "pure", "epsilon=0.1", "--idempotency-key", "=1+1")
    assert ",'=1+1," in run("ledger", "adult", "--csv").stdout


# -- verify


def test_verify_says_ok_and_the_head(run: Run) -> None:
    receipt = json.loads(run("charge", "adult", "pure", "epsilon=0.1", "--format", "json").stdout)
    assert f"ok      adult: 2 entries, {receipt['hash']}" in run("verify").stdout


def test_verify_finds_a_changed_total(run: Run, tmp_path: Path) -> None:
    run("charge", "adult", "pure", "epsilon=0.1")
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as connection:
        changed = "UPDATE blobs SET value=replace(value, ?, '100 ') WHERE name='totals/dataset'"
        connection.execute(changed, (f"{10**29} ",))
    shown = run("verify", status=1).stdout
    assert "FAULTY  adult" in shown
    assert "adult, entry 2, dataset, pure: the store holds 100 units" in shown
    found = json.loads(run("verify", "adult", "--format", "json", status=1).stdout)[0]["findings"]
    assert found[0]["scope"] == "dataset"


def test_verify_says_what_is_wrong_with_a_file_that_is_no_ledger(tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"not a ledger" * 1000)
    result = runner()("verify", "--store", f"sqlite:///{tmp_path / 'bad.sqlite'}", status=1)
    assert "damaged" in result.stderr


def test_what_a_damaged_ledger_holds_does_not_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE streams SET name=char(27) || '[2J' WHERE name='adult'")
    assert "\x1b" not in run("verify", status=1).stdout


def test_verify_of_a_name_that_is_not_there(run: Run) -> None:
    assert "no stream 'none'" in run("verify", "none", status=1).stderr


# -- serve


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, str]]:
    store = f"sqlite:///{tmp_path_factory.mktemp('served') / 'ledger.sqlite'}"
    with serve(store, command=ODOMETER) as running:
        yield running, store


def test_the_first_start_gives_a_key_that_works(service: tuple[Service, str]) -> None:
    running, _ = service
    assert running.admin_key is not None
    run = runner(ODOMETER_URL=running.url, ODOMETER_KEY=running.admin_key)
    opened = ("--unit", "p", "--adjacency", "add_remove", "--delta", "1e-6", "--budget", "life:zcdp:rho=1")
    run("dataset", "create", "first", *opened)
    run("charge", "first", "zcdp", "rho=0.25")
    assert "25.0 %" in run("status", "first").stdout
    assert "first" in run("verify", "--store", service[1]).stdout


def test_without_a_key_the_answer_says_what_to_set(service: tuple[Service, str]) -> None:
    result = runner(ODOMETER_URL=service[0].url)("dataset", "list", status=1)
    assert "Set ODOMETER_KEY" in result.stderr
    assert "none was given" in result.stderr


HTTP_WORDS = ("Authorization", "Bearer", "header", "401", "HTTP", "POST")


@pytest.mark.parametrize("key", [None, "po_unknown"])
def test_a_key_error_speaks_of_the_command_line(service: tuple[Service, str], key: str | None) -> None:
    """Whoever types commands is told of the variable and the option, and of no protocol."""
    given = {} if key is None else {"ODOMETER_KEY": key}
    run = runner(ODOMETER_URL=service[0].url, **given)
    for command in (
        ("dataset", "list"),
        ("key", "list"),
        ("charge", "d", "pure", "epsilon=1"),
        ("scopes", "d"),
    ):
        said = run(*command, status=1).stderr
        assert service[0].url in said
        assert "--key" in said
        assert not any(word in said.replace(service[0].url, "") for word in HTTP_WORDS)
        assert key is None or key not in said
        assert key is None or "Set ODOMETER_KEY (or --key) to a whole key of this service: po_…" in said


def test_a_key_that_is_none_is_wrong_usage(service: tuple[Service, str]) -> None:
    """Nothing is sent with it."""
    run = runner(ODOMETER_URL=service[0].url)
    for key in ("po_abc\n", "po abc", " "):
        assert "nothing was sent" in run("dataset", "list", "--key", key, status=2).stderr


def test_keys_through_the_service(service: tuple[Service, str]) -> None:
    admin = runner(ODOMETER_URL=service[0].url, ODOMETER_KEY=str(service[0].admin_key))
    made = json.loads(admin("key", "create", "reader", "--name", "Bob", "--format", "json").stdout)
    bob = runner(ODOMETER_URL=service[0].url, ODOMETER_KEY=made["token"])
    bob("dataset", "list")
    assert "role admin" in bob("key", "list", status=1).stderr
    assert "Bob" in admin("key", "list").stdout
    assert admin("key", "revoke", made["id"]).stdout == f"revoked {made['id']}\n"
    bob("dataset", "list", status=1)
    again = admin("key", "revoke", made["id"]).stdout
    assert again == f"{made['id']} was revoked before; nothing changed\n"
    admin("key", "revoke", "k_none", status=1)
    assert "there is no key 'Bob': a key is called by its id, k_…" in _flat(
        admin("key", "revoke", "Bob", status=1).stderr
    )
    principal = made["principal"]
    assert f"{principal} is a principal" in _flat(admin("key", "revoke", principal, status=1).stderr)


def _flat(text: str) -> str:
    """Without the line ends of a narrow terminal, and its frames."""
    return " ".join(text.replace("│", " ").split())


def test_a_token_that_stands_for_an_id_is_not_repeated(service: tuple[Service, str]) -> None:
    """Neither by the command line, which does not send it, nor by the service's 404."""
    token = str(service[0].admin_key)
    admin = runner(ODOMETER_URL=service[0].url, ODOMETER_KEY=token)
    for command in (
        ("key", "revoke"),
        ("key", "rotate"),
        ("key", "add"),
        ("principal", "show"),
        ("principal", "set"),
        ("principal", "erase-name"),
    ):
        ended = admin(*command, token, status=2)
        assert token[3:20] not in ended.output
        assert "that is a token, not an id" in _flat(ended.stderr)
    with Client(service[0].url, token) as client:
        for ask in (client.revoke_key, client.rotate_key, client.principal, client.add_key):
            with pytest.raises(NotFound, match="that is a token, not an id") as refused:
                ask(token)
            assert token[3:20] not in json.dumps(dict(refused.value.problem))


def test_a_rotated_key_overlaps_for_a_time_as_people_write_it(service: tuple[Service, str]) -> None:
    admin = runner(ODOMETER_URL=service[0].url, ODOMETER_KEY=str(service[0].admin_key))
    for option, time in (("--overlap", "1h"), ("--overlap-s", "0"), ("--overlap-s", "60")):
        made = json.loads(admin("key", "create", "reader", "--format", "json").stdout)
        admin("key", "rotate", made["id"], option, time)
    assert "is not a duration" in _flat(
        admin("key", "rotate", made["id"], "--overlap", "soon", status=2).stderr
    )


def test_a_lost_admin_key_is_replaced_in_the_store(service: tuple[Service, str]) -> None:
    """Also while a service runs on it."""
    _, store = service
    made = json.loads(runner()("key", "create", "admin", "--store", store, "--format", "json").stdout)
    listed = runner()("key", "list", "--store", store).stdout
    assert made["id"] in listed
    with serve(store, command=ODOMETER) as second:
        assert second.admin_key is None
        runner(ODOMETER_URL=second.url, ODOMETER_KEY=made["token"])("key", "list")


def test_a_port_in_use_is_said_and_the_ledger_not_touched(
    service: tuple[Service, str], tmp_path: Path
) -> None:
    port = service[0].url.rpartition(":")[2]
    store = tmp_path / "other.sqlite"
    result = runner()("serve", "--port", port, "--store", f"sqlite:///{store}", status=78)
    assert f"cannot listen on 127.0.0.1 port {port}: the port is in use" in result.stderr
    assert "Choose another port with --port (`make serve PORT=9000`)" in result.stderr
    assert not store.exists()


@pytest.mark.parametrize(
    ("environment", "arguments", "status", "said"),
    [
        ({"ODOMETER_PORT": "abc"}, (), 78, "ODOMETER_PORT"),
        ({"ODOMETER_SLOW_AFTER_S": "-1"}, (), 78, "ODOMETER_SLOW_AFTER_S"),
        ({}, ("--port", "70000"), 2, "--port"),
        ({}, ("--port", "0", "--store", "mysql://x"), 78, "sqlite:///"),
        ({}, ("--port", "0", "--log-level", "loud"), 78, "--log-level"),
    ],
)
def test_a_bad_setting_is_named(
    environment: dict[str, str], arguments: tuple[str, ...], status: int, said: str
) -> None:
    result = runner(**environment)("serve", *arguments, status=status)
    assert said in result.output


def test_a_new_ledger_is_announced_once(tmp_path: Path) -> None:
    """One warning with the name of the store, on the standard output, and no second one in the log."""
    store = tmp_path / "ledger.sqlite"
    command = [*ODOMETER, "serve", "--port", "0", "--store", f"sqlite:///{store}"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as serving:
        assert serving.stdout is not None
        lines = []
        for line in serving.stdout:
            lines.append(line)
            if "is serving on" in line:
                break
        serving.terminate()
    about = [line for line in lines if "new ledger" in line.lower()]
    assert len(about) == 1, lines
    assert about[0].startswith(f"NEW LEDGER: sqlite:///{store} was empty")


def test_a_damaged_ledger_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"not a ledger" * 1000)
    result = runner()("serve", "--port", "0", "--store", f"sqlite:///{tmp_path / 'bad.sqlite'}", status=3)
    assert "damaged" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_ends_well(number: signal.Signals) -> None:
    with serve("memory://", command=ODOMETER) as running:
        running.process.send_signal(number)
        assert running.process.wait(timeout=30) == 0


def test_when_the_ledger_thread_dies_the_service_ends_with_its_own_status() -> None:
    fault = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "from odometer_accountant.writer import writer\n"
        "def die(*_): raise RuntimeError('on purpose')\n"
        "writer.LedgerWriter._round = die\n"
        "import privacy_odometer.cli; privacy_odometer.cli.main()"
    )
    with serve("memory://", command=[sys.executable, "-c", fault, str(ROOT)]) as running:
        run = runner(ODOMETER_URL=running.url, ODOMETER_KEY=str(running.admin_key))
        opened = ("--unit", "p", "--adjacency", "add_remove", "--delta", "1e-6", "--odometer-only")
        run("dataset", "create", "d", *opened, status=3)
        assert running.process.wait(timeout=30) == 70

"""What is nearly right on a command line is refused with what to write, or taken where it is clear."""

import json
import re
from pathlib import Path

import pytest
import typer
from command_line import Run, runner

from privacy_odometer.cli import parsing

CONVERT = ("--delta", "1e-6", "--url", "memory://")


@pytest.fixture
def run() -> Run:
    return runner(COLUMNS="300")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("poisson_subsampled", "base=gaussian"), "write base.kind=gaussian and its parameters likewise"),
        (("grouped", "base.base=laplace"), "write base.base.kind=laplace"),
        (("composed", "mechanisms=gaussian,laplace"), """mechanisms='[{"kind": …}, …]'"""),
    ],
)
def test_a_mechanism_within_another_is_told(run: Run, asked: tuple[str, ...], said: str) -> None:
    result = run("convert", *asked, *CONVERT, status=2)
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_json_within_words_is_taken(run: Run) -> None:
    run("convert", "grouped", 'base={"kind": "laplace", "epsilon": 1}', "group_size=2", *CONVERT)
    run("convert", "composed", 'mechanisms=[{"kind": "laplace", "epsilon": 1}]', *CONVERT)


def test_a_whole_number_may_be_written_as_a_power_of_ten(run: Run) -> None:
    drawn = ("base.kind=gaussian", "base.noise_multiplier=1.1", "batch_size=2.56e2", "population=6e4")
    run("convert", "sampled_without_replacement", *drawn, *CONVERT)
    assert isinstance(parsing.number("6e4"), int)
    assert isinstance(parsing.number("1e300"), float)


@pytest.mark.parametrize(
    ("epochs", "said"),
    [("1.2", "epochs: must be a whole number"), ("many", "epochs: must be a whole number")],
)
def test_a_number_that_is_not_whole_is_refused_as_such(run: Run, epochs: str, said: str) -> None:
    asked = ("shuffled_epochs", "base.kind=gaussian", "base.noise_multiplier=2", f"epochs={epochs}")
    assert said in run("convert", *asked, *CONVERT, status=1).stderr


@pytest.mark.parametrize(
    ("text", "both"),
    [
        ("1e-400", "0.0 or 5e-324"),
        ("-1e-400", "-5e-324 or -0.0"),
        ("1e-99999999999999999999", "0.0 or 5e-324"),
        ("0.10000000000000000000001", "0.1 or 0.10000000000000002"),
        ("0.09999999999999999999999", "0.09999999999999999 or 0.1"),
    ],
)
def test_a_number_that_no_float_has_is_told_with_both_neighbours(text: str, both: str) -> None:
    """Of an epsilon the lower one would be charged as less than was meant, of a noise the higher one."""
    with pytest.raises(typer.BadParameter, match=f"write {re.escape(both)}, "):
        parsing.number(text)


def test_a_share_in_percent_is_told_as_a_number(run: Run) -> None:
    asked = ("poisson_subsampled", "base.kind=gaussian", "base.noise_multiplier=2")
    assert "write 1 % as 0.01" in run("convert", *asked, "sampling_rate=1%", *CONVERT, status=1).stderr
    assert "write 75 % as 0.75" in run("convert", *asked, "sampling_rate=75", *CONVERT, status=1).stderr
    asked = ("gaussian", "noise_multiplier=2", "--delta", "1%", "--url", "memory://")
    assert "write 1 % as 0.01" in run("convert", *asked, status=2).stderr


@pytest.mark.parametrize(("text", "seconds"), [("7d", 604_800), ("12h", 43_200), ("30m", 1800), ("45", 45)])
def test_a_time_may_have_a_unit(text: str, seconds: int) -> None:
    assert parsing.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "1.5h", "1w", "", "1e3", "d"])
def test_what_is_no_time_is_told_with_what_is(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="write 7d, 12h"):
        parsing.duration_s(text)


def test_the_version_can_be_asked(run: Run) -> None:
    assert run("--version").stdout.startswith("odometer 0.")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("status", "x", "--format", "yaml"), "'yaml' is not one of 'text', 'json'"),
        (("charge", "d", "gaussian", "--count", "many"), "it is not a whole number"),
        (("charge", "d", "gaussian", "--count", "0"), "it must be greater than or equal to 1"),
    ],
)
def test_a_wrong_option_is_told_in_plain_words(run: Run, arguments: tuple[str, ...], said: str) -> None:
    shown = " ".join(run(*arguments, status=2).stderr.replace("│", " ").split())
    assert said in shown
    assert "Value error" not in shown


def test_the_width_is_that_of_the_command_and_not_of_the_import(tmp_path: Path) -> None:
    """Whoever tests with COLUMNS set gets what is asked for in each command."""
    for columns in ("40", "200"):
        one = runner(COLUMNS=columns, ODOMETER_URL=f"sqlite:///{tmp_path}/{columns}.sqlite")
        budget = ("--budget", "life:approximate:epsilon=3,delta=1e-6")
        shown = one("dataset", "create", "d", "--unit", "person", "--adjacency", "add_remove", *budget)
        assert ("spent 0, left 3" in shown.stdout) is (columns == "40")  # too narrow for a table


def test_delta_is_said_once(tmp_path: Path) -> None:
    """Of the readings and of the budget: either says it for both; two that differ are told apart by name."""
    run = runner(COLUMNS="200", ODOMETER_URL=f"sqlite:///{tmp_path}/ledger.sqlite")
    make = ("dataset", "create")
    about = ("--unit", "person", "--adjacency", "add_remove")
    first = run(*make, "a", *about, "--budget", "life:approximate:epsilon=3,delta=1e-6", "--format", "json")
    assert json.loads(first.stdout)["delta"] == 1e-6
    second = run(*make, "b", *about, "--delta", "1e-7", "--budget", "life:approximate:epsilon=3")
    assert "δ 1e-07" in second.stdout
    run("budget", "add", "b", "more:approximate:epsilon=4")
    assert json.loads(run("dataset", "show", "b", "--format", "json").stdout)["budgets"][1]["delta"] == 1e-7
    refused = run(*make, "c", *about, "--budget", "life:pure:epsilon=3", status=2)
    assert "give --delta" in " ".join(refused.stderr.split())


def test_a_charge_and_a_check_show_one_number(tmp_path: Path) -> None:
    """What a check says is left after a charge is what the charge then says: both in ε."""
    run = runner(COLUMNS="200", ODOMETER_URL=f"sqlite:///{tmp_path}/ledger.sqlite")
    about = ("--unit", "person", "--adjacency", "add_remove")
    run("dataset", "create", "d", *about, "--budget", "life:approximate:epsilon=1,delta=1e-6")
    asked = ("d", "gaussian", "noise_multiplier=20", "--count", "5")
    lines = [run(command, *asked).stdout.splitlines() for command in ("check", "charge")]
    checked, charged = ([line for line in one if "life" in line] for one in lines)
    assert checked == charged
    assert "ε 1" in charged[0]
    assert "order" not in charged[0]
    refused = run("charge", *asked[:-1], "100000", status=1).stderr
    assert "at order" not in refused
    assert "life (approximate): limit 1, spent 0." in refused


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gaussian", "not JSON: Expecting value"),
        ("3", "give a mechanism like"),
        ("[3]", "item 1 is not a charge"),
        ('[{"mechanism": {"kind": "pure", "epsilon": 1}}]', "item 1 has no 'count'"),
        (
            '[{"mechanism": {"kind": "pure", "epsilon": 1}, "count": 1}, {"count": 2}]',
            "item 2 has no 'mechanism'",
        ),
    ],
)
def test_json_that_is_no_charge_is_told_with_an_example(given: str, said: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        parsing.charges(given)
    assert said in refused.value.message
    assert (
        '[{"mechanism": {"kind": "gaussian", "noise_multiplier": 10}, "count": 5}, …]'
        in refused.value.message
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"charges": [], "adjacency": "zero_out"}, "field 'adjacency' is not read here, only 'charges'"),
        ({"charges": [], "partitions": "all"}, "give it as --partition or --all-partitions"),
        ({"mechanism": {"kind": "pure"}, "count": 1, "units": ["a"]}, "give it as --unit"),
        ([{"mechanism": {"kind": "pure"}, "count": 1, "group": {}}], "give it as --group and --runs"),
        ([{"mechanism": {"kind": "pure"}, "count": 1, "nonsense": 1}], "field 'nonsense'"),
    ],
)
def test_a_field_in_json_that_is_not_read_is_refused_by_name(given: object, said: str) -> None:
    """A charge never drops a field silently: whoever wrote it would be charged for something else."""
    with pytest.raises(typer.BadParameter) as refused:
        parsing.charges(json.dumps(given))
    assert said in refused.value.message

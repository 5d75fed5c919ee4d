"""What is nearly right on a command line is refused with what to write, or taken where it is clear."""

import pytest
from command_line import Run, runner

from api.cli import words

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
    assert isinstance(words.number("6e4"), int)
    assert isinstance(words.number("1e300"), float)


@pytest.mark.parametrize(
    ("epochs", "said"),
    [("1.2", "epochs: must be a whole number"), ("many", "epochs: must be a whole number")],
)
def test_a_number_that_is_not_whole_is_refused_as_such(run: Run, epochs: str, said: str) -> None:
    asked = ("shuffled_epochs", "base.kind=gaussian", "base.noise_multiplier=2", f"epochs={epochs}")
    assert said in run("convert", *asked, *CONVERT, status=1).stderr


def test_a_share_in_percent_is_told_as_a_number(run: Run) -> None:
    asked = ("poisson_subsampled", "base.kind=gaussian", "base.noise_multiplier=2")
    assert "write 1 % as 0.01" in run("convert", *asked, "sampling_rate=1%", *CONVERT, status=1).stderr
    assert "write 75 % as 0.75" in run("convert", *asked, "sampling_rate=75", *CONVERT, status=1).stderr
    asked = ("gaussian", "noise_multiplier=2", "--delta", "1%", "--url", "memory://")
    assert "write 1 % as 0.01" in run("convert", *asked, status=2).stderr

"""The generated modules are fresh, and say what the service's registries say."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odometer_accountant import errors as service_errors
from odometer_accountant.mechanisms import ANY_MECHANISM
from odometer_accountant.mechanisms import Mechanism as ServiceMechanism
from odometer_client import errors, mechanisms
from odometer_client.mechanism import Mechanism

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [example for kind in ServiceMechanism.registry.values() for example in kind.examples]


def test_the_generated_files_are_fresh() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("code", sorted(service_errors.registry()))
def test_every_error_has_its_class(code: str) -> None:
    ours, theirs = errors.BY_CODE[code], service_errors.registry()[code]
    assert (ours.__name__, ours.code, ours.title, ours.retryable) == (
        theirs.__name__,
        theirs.code,
        theirs.title,
        theirs.retryable,
    )


def typed(document: dict[str, Any]) -> Mechanism:
    members = {name: _typed(value) for name, value in document.items() if name != "kind"}
    return mechanisms.BY_KIND[document["kind"]](**members)


def _typed(value: Any) -> Any:
    """A mechanism within it as its class; a list as a tuple."""
    if isinstance(value, dict) and "kind" in value:
        return typed(value)
    return tuple(_typed(item) for item in value) if isinstance(value, list) else value


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["kind"])
def test_every_example_is_the_same_document_through_its_class(example: dict[str, Any]) -> None:
    ours = typed(example)
    assert ours.document() == example
    assert ANY_MECHANISM.validate_python(ours.document()) == ANY_MECHANISM.validate_python(example)


def test_every_mechanism_has_its_class() -> None:
    assert set(mechanisms.BY_KIND) == set(ServiceMechanism.registry)


@pytest.mark.parametrize("kind", sorted(mechanisms.BY_KIND))
def test_a_mechanism_can_be_a_key(kind: str) -> None:
    if kind == "tuned":  # the law of its repeats is a plain dict
        return
    example = typed(ServiceMechanism.registry[kind].examples[0])
    assert {example: 1}[typed(ServiceMechanism.registry[kind].examples[0])] == 1

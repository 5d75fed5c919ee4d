"""Free text is one line that can be seen; what was taken before that was asked is read, and answered."""

import json
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import Live, dataset_document, live

from odometer_accountant import plain_text
from odometer_accountant.errors import InvalidRequest
from odometer_accountant.mechanisms import base
from odometer_accountant.plain_text import fault, shown
from odometer_accountant.requests.bodies import CreateDataset
from odometer_accountant.requests.json_input import validated
from odometer_accountant.service.accountant import Accountant
from odometer_accountant.stores import open_store
from odometer_accountant.verify.walk import verify

UNSEEN = {
    "zero width space": "\u200b",
    "zero width joiner": "\u200d",
    "word joiner": "\u2060",
    "byte order mark": "\ufeff",
    "soft hyphen": "\u00ad",
    "left-to-right mark": "\u200e",
    "right-to-left mark": "\u200f",
    "Arabic letter mark": "\u061c",
    "right-to-left override": "\u202e",
    "isolate": "\u2066",
    "NUL": "\x00",
    "new line": "\n",
    "tab": "\t",
    "escape": "\x1b",
    "delete": "\x7f",
    "next line": "\x85",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "lone high surrogate": "\ud800",
    "lone low surrogate": "\udfff",
    "private use": "\ue000",
    "noncharacter": "\uffff",
    "unassigned": "\u0378",
    "last noncharacter": "\U0010ffff",
    "tag": "\U000e0041",
    "variation selector": "\ufe0f",
    "grapheme joiner": "\u034f",
    "Hangul filler": "\u3164",
    "Mongolian separator": "\u180e",
    "empty Braille": "\u2800",
}
PLAIN = (
    "person",
    "Zoë",
    "患者 2026",
    "كلية الطب",
    "बहुत",
    "a\u3000b",
    "é",
    "👍 µ-report (v2) — 5 %",
    "\u00a0x",
)


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        running.open("d")
        assert running.charge("d", "before").status_code == 201
        yield running


def bodies(text: str) -> dict[str, tuple[str, dict[str, Any], str]]:
    """Every field of free text: where it is sent, in which body, and how an error calls it."""
    note = {"kind": "non_private", "what": text}
    return {
        "unit": ("/v1/datasets", {**dataset_document("new"), "unit": text}, "unit"),
        "name": ("/v1/keys", {"role": "reader", "name": text}, "name"),
        "reason": ("/v1/datasets/d/unfreeze", {"reason": text}, "reason"),
        "description": ("/v1/datasets/d/derived", {"parent": 2, "description": text}, "description"),
        "what": ("/v1/datasets/d/checks", {"mechanism": note, "count": 1}, "mechanism.what"),
    }


@pytest.mark.parametrize("field", bodies(""))
@pytest.mark.parametrize("name", UNSEEN)
def test_what_cannot_be_seen_is_refused_and_named(service: Live, name: str, field: str) -> None:
    character = UNSEEN[name]
    path, body, place = bodies(f"ab{character}c")[field]
    reply = service.ask(
        "POST", path, content=json.dumps(body).encode(), headers={"Idempotency-Key": "unseen"}
    )
    assert reply.status_code == 422, reply.text
    error = reply.json()["errors"][0]
    assert error["field"] == place
    assert f"character 3 is U+{ord(character):04X}" in error["message"]
    assert character not in reply.text


@pytest.mark.parametrize("field", bodies(""))
def test_text_with_nothing_to_see_is_refused(service: Live, field: str) -> None:
    path, body, place = bodies(" \u3000 ")[field]
    reply = service.ask("POST", path, json=body, headers={"Idempotency-Key": "blank"})
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, place)


@pytest.mark.parametrize("text", PLAIN)
def test_texts_of_every_language_are_taken(text: str) -> None:
    wanted = validated(CreateDataset, {**dataset_document("new"), "unit": text})
    assert wanted.unit == text


def test_there_is_no_other_free_text(service: Live) -> None:
    """A string of a body has a pattern, a list of values, or the check of this file."""
    schemas = service.ask("GET", "/openapi.json", None).json()["components"]["schemas"]
    taken = {name for name, schema in schemas.items() if not name.endswith(("Reply", "Receipt", "State"))}
    replies = {"DatasetProblem", "Hold", "LedgerEntry", "MechanismSpend", "OpenHold", "Point", "Problem"}
    replies |= {"PrincipalSpend", "Refusal", "UnreadableDataset", "WouldFit"}

    def free(schema: Any, name: str) -> Iterator[str]:
        if isinstance(schema, list):
            for item in schema:
                yield from free(item, name)
        elif isinstance(schema, dict):
            if schema.get("type") == "string" and not {"pattern", "enum", "const"} & set(schema):
                yield name
            for key, item in schema.items():
                if key == "properties":
                    for inner, one in item.items():
                        yield from free(one, inner)
                elif key not in ("examples", "description"):
                    yield from free(item, name)

    found = {text for name in taken - replies for text in free(schemas[name], "")}
    assert found == set(bodies(""))


@given(st.characters(codec="utf-8"))
def test_a_character_is_plain_unless_it_is_unseen(character: str) -> None:
    why = fault(f"a{character}")
    if unicodedata.category(character) in ("Cc", "Cf", "Co", "Cn", "Zl", "Zp"):
        assert why is not None
    elif why is not None:
        assert unicodedata.category(character) in ("Mn", "Lo", "So")
    assert shown(f"a{character}").isprintable() or unicodedata.category(character) == "Zs"


def test_every_letter_and_digit_that_is_seen_is_taken() -> None:
    refused = [
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if character.isalnum() and fault(character) is not None
    ]
    assert refused == list("\u115f\u1160\u3164\uffa0")  # the fillers of Hangul, which are blank


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/%E2%80%AE", None),
        ("GET", "/v1/datasets/%E2%80%AE", None),
        ("PATCH", "/v1/datasets/%E2%80%AE", None),
        ("GET", "/problems/%E2%80%AE", None),
        ("PUT", "/v1/datasets/d/budgets/%E2%80%AE", b'{"kind":"zcdp","rho":1}'),
        ("POST", "/v1/datasets", b'{"\\u202e": 1}'),
        ("POST", "/v1/datasets", b'{"\\u202e": 1e-400}'),
        ("POST", "/v1/datasets", b'{"\\ud800": 1}'),
        ("POST", "/v1/datasets", b'{"a\\udc00": [{"b": 1}]}'),
        ("POST", "/v1/convert", b'{"mechanism": {"kind": "\\u202e"}, "count": 1, "delta": 1e-6}'),
        ("POST", "/v1/dp-events", b'{"dp_event": {"class_name": "\\u202e"}}'),
        ("GET", "/v1/datasets/d/odometer?%E2%80%AE=1", None),
        ("GET", "/v1/datasets/d/sessions/%E2%80%AE", None),
        ("DELETE", "/v1/keys/%E2%80%AE", None),
    ],
)
def test_an_error_repeats_nothing_unseen(service: Live, method: str, path: str, body: bytes | None) -> None:
    reply = service.ask(method, path, content=body, headers={"If-Match": '"v1"', "Idempotency-Key": "k"})
    assert 400 <= reply.status_code < 500, reply.text
    assert "\u202e" not in reply.text
    assert reply.json()["detail"].isprintable()


OLD: dict[str, Any] = {
    "name": "old",
    "unit": "per\u200bson",
    "adjacency": "add_remove",
    "delta": 1e-6,
    "odometer_only": True,
}
CHARGE = {"mechanism": {"kind": "non_private", "what": "a\u200fb"}, "count": 1}
DERIVED = {"parent": 2, "description": "a plot\u2060"}


def test_what_was_taken_before_is_read_and_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.sqlite"
    with monkeypatch.context() as before:
        before.setattr(base, "fault", lambda _: None)
        with Accountant(open_store(ledger)) as accountant:
            accountant.create_dataset(OLD, "root")
            receipt, _ = accountant.charge("old", CHARGE, "k", "ada")
            made, _ = accountant.derive("old", DERIVED, "d", "ada")
    with Accountant(open_store(ledger)) as accountant:
        again, replayed = accountant.charge("old", CHARGE, "k", "ada")
        assert (again["sequence"], replayed) == (receipt["sequence"], True)
        assert accountant.derive("old", DERIVED, "d", "ada") == ({**made, "replayed": True}, True)
        assert accountant.dataset("old")["unit"] == OLD["unit"]
        for ask in (
            lambda: accountant.charge("old", CHARGE, "new", "ada"),
            lambda: accountant.derive("old", DERIVED, "new", "ada"),
        ):
            with pytest.raises(InvalidRequest, match="character"):
                ask()
        assert accountant.dataset("old")["sequence"] == 3
        assert not [finding for verdict in verify(accountant.store) for finding in verdict.findings]


def test_the_description_is_that_of_this_unicode() -> None:
    assert unicodedata.unidata_version in (plain_text.fault("\u0378") or "")

"""A principal is not a credential: what it spent, opened and asked stays its own, whatever key it has."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Live, live

from odometer_accountant.ledger.commands import Caller
from odometer_client import Client
from odometer_client.errors import Forbidden

PURE = {"kind": "pure", "epsilon": 0.9}
SMALL = {"kind": "pure", "epsilon": 0.2}
_number = count(1)


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        yield running


@pytest.fixture
def dataset(service: Live) -> str:
    """A dataset where each principal may lose a pure 1."""
    name = f"d{next(_number)}"
    each = {"name": "each", "kind": "pure", "epsilon": 1, "scope": "principal/*"}
    team = {"name": "team", "kind": "pure", "epsilon": 1.5, "scope": "team/*"}
    service.open(name, budgets=[{"name": "life", "kind": "pure", "epsilon": 100}, each, team])
    return name


def make(service: Live, role: str = "charger", **more: Any) -> dict[str, Any]:
    reply = service.ask("POST", "/v1/keys", json={"role": role, **more})
    assert reply.status_code == 201, reply.text
    made: dict[str, Any] = reply.json()
    return made


def one_more(service: Live, principal: str, **more: Any) -> dict[str, Any]:
    reply = service.ask("POST", f"/v1/principals/{principal}/keys", json=more)
    assert reply.status_code == 201, reply.text
    made: dict[str, Any] = reply.json()
    return made


def revoke(service: Live, key: str) -> None:
    assert service.ask("DELETE", f"/v1/keys/{key}").status_code == 204


def charge(service: Live, dataset: str, token: str, mechanism: Any = SMALL, **more: Any) -> httpx.Response:
    once = more.pop("once", f"c{next(_number)}")
    return service.charge(dataset, once, {"mechanism": mechanism, "count": 1, **more}, token)


def code(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["type"].removeprefix("/problems/")


def set_to(service: Live, principal: str, **more: Any) -> httpx.Response:
    """A change of what a principal may do, on top of how it is."""
    path = f"/v1/principals/{principal}"
    now = service.ask("GET", path).json()
    body = {"role": now["role"], "team": now["team"], "acts_for": now["acts_for"], **more}
    return service.ask("PUT", path, json=body, headers={"If-Match": now["etag"]})


# What was spent stays spent


def test_a_new_key_after_a_revoked_one_has_what_its_principal_has_left(service: Live, dataset: str) -> None:
    """Revoking a key and making another gives no fresh budget: neither to its principal nor by its name."""
    name = f"ann {next(_number)}"
    first = make(service, name=name)
    assert charge(service, dataset, first["token"], PURE).status_code == 201
    revoke(service, first["id"])
    assert charge(service, dataset, first["token"]).status_code == 401
    taken = service.ask("POST", "/v1/keys", json={"role": "charger", "name": name})
    assert code(taken) == (409, "name-taken")
    assert taken.json()["principals"] == [first["principal"]]
    assert f"/v1/principals/{first['principal']}/keys" in taken.json()["detail"]
    second = one_more(service, first["principal"])
    assert (second["principal"], second["name"]) == (first["principal"], name)
    assert code(charge(service, dataset, second["token"])) == (409, "budget-exceeded")
    assert charge(service, dataset, second["token"], {"kind": "pure", "epsilon": 0.1}).status_code == 201


def test_a_name_that_was_charged_for_is_taken(service: Live, dataset: str) -> None:
    """Who charges for others used it: whoever is called so afterwards would have a fresh budget."""
    name = f"guest{next(_number)}"
    gateway = make(service, acts_for=["*"])
    body = {"mechanism": PURE, "count": 1, "principal": name}
    headers = {"Idempotency-Key": name}
    paid = service.ask(
        "POST", f"/v1/datasets/{dataset}/charges", gateway["token"], json=body, headers=headers
    )
    assert paid.status_code == 201
    for spelt in (name, name.upper()):
        taken = service.ask("POST", "/v1/keys", json={"role": "charger", "name": spelt})
        assert code(taken) == (409, "name-taken")
        assert dataset in taken.json()["detail"]


@pytest.mark.parametrize("name", ["service", "Recovery", "embedded"])
def test_nobody_is_called_as_the_ledger_calls_itself(service: Live, name: str) -> None:
    refused = service.ask("POST", "/v1/keys", json={"role": "charger", "name": name})
    assert code(refused) == (422, "invalid-request")


@pytest.mark.parametrize("how", ["upper", "blanks", "wide", "decomposed"])
def test_a_name_that_reads_the_same_is_the_same(service: Live, how: str) -> None:
    """Case, blanks, width and composition of letters make no other name."""
    name = f"zoë ann {next(_number)}"
    make(service, name=name)
    same = {
        "upper": name.upper(),
        "blanks": f" {name.replace(' ', '   ')} ",
        "wide": "".join(
            chr(ord(letter) + 0xFEE0) if letter.isalpha() and letter.isascii() else letter for letter in name
        ),
        "decomposed": name.replace("ë", "e\u0308"),
    }[how]
    assert same != name
    reply = service.ask("POST", "/v1/principals", json={"role": "reader", "name": same})
    assert code(reply) == (409, "name-taken")


@pytest.mark.parametrize(
    "hidden",
    ["\u200b", "\u200d", "\u202e", "\u2066", "\ufeff", "\u00ad", "\u3164", "\ufe0f", "\u2060", "\U000e0041"],
)
def test_a_name_with_what_nobody_sees_is_refused(service: Live, hidden: str) -> None:
    """Two names that look the same are not taken for two."""
    for path in ("/v1/keys", "/v1/principals"):
        reply = service.ask("POST", path, json={"role": "reader", "name": f"an{hidden}n"})
        assert code(reply) == (422, "invalid-request")
        assert [error["field"] for error in reply.json()["errors"]] == ["name"]
    assert code(service.ask("POST", "/v1/keys", json={"role": "reader", "name": "   "}))[0] == 422


def test_a_name_is_no_id(service: Live) -> None:
    """A list says who is who by ids: nobody is called like one."""
    for letter in "pkn":
        reply = service.ask("POST", "/v1/keys", json={"role": "reader", "name": f"{letter}_0123456789abcdef"})
        assert code(reply) == (422, "invalid-request")


def test_an_erased_name_is_not_used_again(service: Live) -> None:
    """Erasing a name forgets it, and frees it for nobody."""
    name = f"eve {next(_number)}"
    made = make(service, name=name)
    path = f"/v1/principals/{made['principal']}"
    for _ in range(2):  # doing it twice is doing it once
        assert service.ask("DELETE", f"{path}/name").status_code == 204
    shown = service.ask("GET", path).json()
    assert (shown["name"], shown["name_erased"], shown["keys"]) == (None, True, 1)
    reply = service.ask("POST", "/v1/keys", json={"role": "charger", "name": name.title()})
    assert code(reply) == (409, "name-taken")
    assert "erased" in reply.json()["detail"]
    assert name not in reply.text
    entries = b"".join(row.body for row in service.app.state.accountant.store.entries("~keys", 0, 1000))
    assert name.encode() not in entries


def test_a_name_whose_note_alone_was_erased_is_not_used_again(service: Live) -> None:
    """Also where a person erased it in the store itself."""
    name = f"eve {next(_number)}"
    made = make(service, name=name)
    service.app.state.accountant.store.erase_note(made["principal"])
    assert code(service.ask("POST", "/v1/keys", json={"role": "charger", "name": name})) == (
        409,
        "name-taken",
    )


def test_two_keys_of_one_principal_share_its_budget(service: Live, dataset: str) -> None:
    """However many keys there are, there is one odometer."""
    first = make(service)
    second = one_more(service, first["principal"])
    assert charge(service, dataset, first["token"], PURE).status_code == 201
    assert charge(service, dataset, second["token"]).status_code == 409
    revoke(service, first["id"])
    assert service.ask("GET", "/v1/me", second["token"]).json()["principal"] == first["principal"]


# Rotation


def test_after_a_rotation_a_retry_under_the_new_key_gets_the_old_receipt(service: Live, dataset: str) -> None:
    """Idempotency keys are the principal's, not the credential's: nothing is charged twice."""
    old = make(service, name=f"bob {next(_number)}")
    first = charge(service, dataset, old["token"], PURE, once="job-1")
    new = service.ask("POST", f"/v1/keys/{old['id']}/rotation", json={"overlap_s": 0}).json()
    assert (new["principal"], new["replaces"], new["name"]) == (old["principal"], old["id"], old["name"])
    assert charge(service, dataset, old["token"], PURE, once="job-1").status_code == 401
    again = charge(service, dataset, new["token"], PURE, once="job-1")
    assert again.status_code == 200
    assert (again.json()["replayed"], again.json()["hash"]) == (True, first.json()["hash"])
    assert charge(service, dataset, new["token"]).status_code == 409


def test_a_rotated_key_is_taken_until_the_overlap_is_over_and_rotated_once(service: Live) -> None:
    """Two keys work for a while; the second rotation is asked of the key that is left."""
    old = make(service)
    path = f"/v1/keys/{old['id']}/rotation"
    new = service.ask("POST", path, json={}).json()
    for key in (old, new):
        assert service.ask("GET", "/v1/me", key["token"]).status_code == 200
    listed = {key["id"]: key for key in service.ask("GET", "/v1/keys").json()["items"]}
    assert listed[old["id"]]["replaced_by"] == new["id"]
    assert listed[old["id"]]["rotated"] == listed[new["id"]]["rotated"] == new["created"]
    assert listed[old["id"]]["expires"] > new["created"]
    assert listed[new["id"]]["expires"] is None
    reply = service.ask("POST", path, json={})
    assert code(reply) == (409, "key-ended")
    assert new["id"] in reply.json()["detail"]
    revoke(service, new["id"])
    assert code(service.ask("POST", f"/v1/keys/{new['id']}/rotation", json={})) == (409, "key-ended")


# Holds and sessions are the principal's


def test_a_hold_of_a_revoked_key_is_settled_with_another_of_the_principal(
    service: Live, dataset: str
) -> None:
    """Its maker is the principal; nobody else's key does it."""
    first = make(service)
    body = {"mechanism": SMALL, "count": 4, "expires_in_s": 600}
    held = service.ask(
        "POST", f"/v1/datasets/{dataset}/holds", first["token"], json=body, headers={"Idempotency-Key": "h"}
    ).json()
    revoke(service, first["id"])
    path = f"/v1/datasets/{dataset}/holds/{held['hold']['id']}/settlement"
    assert code(service.ask("POST", path, make(service)["token"], json={"used": 1})) == (403, "forbidden")
    second = one_more(service, first["principal"])
    assert service.ask("POST", path, second["token"], json={"used": 1}).status_code == 200
    assert charge(service, dataset, second["token"], {"kind": "pure", "epsilon": 0.8}).status_code == 201
    assert charge(service, dataset, second["token"]).status_code == 409


def test_sessions_are_bounded_for_a_principal_and_not_for_a_key(service: Live) -> None:
    """Twenty open sessions are the most, and another key has none of its own; it answers and closes them."""
    name = f"d{next(_number)}"
    service.open(name)
    first = make(service)
    session = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3}

    def opened(token: str) -> httpx.Response:
        headers = {"Idempotency-Key": f"s{next(_number)}"}
        path = f"/v1/datasets/{name}/sessions"
        return service.ask("POST", path, token, json={"session": session}, headers=headers)

    made = [opened(first["token"]) for _ in range(20)]
    assert {reply.status_code for reply in made} == {201}
    second = service.ask("POST", f"/v1/keys/{first['id']}/rotation", json={"overlap_s": 0}).json()
    assert code(opened(second["token"])) == (409, "too-many-sessions")
    path = f"/v1/datasets/{name}/sessions/{made[0].json()['session']['id']}"
    headers = {"Idempotency-Key": "a1"}
    above = service.ask("POST", f"{path}/answers", second["token"], json={"above": True}, headers=headers)
    assert above.status_code == 200
    assert service.ask("POST", f"{path}/close", second["token"], json={}).status_code == 200
    assert opened(second["token"]).status_code == 201


# Role and team


def test_of_another_team_a_principal_leaves_behind_what_it_spent(service: Live, dataset: str) -> None:
    """What was charged stays the old team's, the new team pays for what comes, its own sum goes on."""
    one, two = f"red{next(_number)}", f"blue{next(_number)}"
    made = make(service, team=one)
    assert charge(service, dataset, made["token"], SMALL, once="old").status_code == 201
    body = {"mechanism": SMALL, "count": 2, "expires_in_s": 600}
    held = service.ask(
        "POST", f"/v1/datasets/{dataset}/holds", made["token"], json=body, headers={"Idempotency-Key": "h"}
    ).json()
    assert set_to(service, made["principal"], team=two).json()["team"] == two
    again = charge(service, dataset, made["token"], SMALL, once="old")
    assert (again.status_code, again.json()["replayed"]) == (200, True)
    assert charge(service, dataset, made["token"], SMALL).status_code == 201
    path = f"/v1/datasets/{dataset}/holds/{held['hold']['id']}/settlement"
    assert service.ask("POST", path, made["token"], json={"used": 1}).status_code == 200
    spent = {
        scope: service.ask("GET", f"/v1/datasets/{dataset}/odometer", params={"scope": scope}).json()[
            "totals"
        ]["pure"]
        for scope in (f"team/{one}", f"team/{two}", f"principal/{made['principal']}")
    }
    assert [round(value, 9) for value in spent.values()] == [0.4, 0.2, 0.6]


def test_a_change_of_role_holds_for_every_key_of_the_principal(service: Live, dataset: str) -> None:
    """A role is the principal's: none of its keys keeps the old one."""
    first = make(service)
    second = one_more(service, first["principal"])
    assert set_to(service, first["principal"], role="reader").status_code == 200
    for key in (first, second):
        assert charge(service, dataset, key["token"]).status_code == 403
    assert set_to(service, first["principal"], role="charger").status_code == 200
    assert charge(service, dataset, second["token"]).status_code == 201


def test_of_two_changes_made_on_one_reading_the_second_is_told(service: Live) -> None:
    """No change is lost under another."""
    made = make(service)
    path = f"/v1/principals/{made['principal']}"
    etag = service.ask("GET", path).json()["etag"]
    body = {"role": "reader", "team": None, "acts_for": []}
    assert service.ask("PUT", path, json=body, headers={"If-Match": etag}).status_code == 200
    reply = service.ask("PUT", path, json={**body, "role": "charger"}, headers={"If-Match": etag})
    assert code(reply) == (412, "edit-conflict")
    assert code(service.ask("PUT", path, json=body)) == (428, "if-match-required")


# On behalf of others

NOBODYS = ["service", "Service", "first-start", "command-line", "recovery", "embedded", "p_0123456789abcdef"]


@pytest.mark.parametrize("name", NOBODYS)
def test_nobody_is_charged_under_a_name_that_the_ledger_uses_or_an_id_it_never_made(
    service: Live, dataset: str, name: str
) -> None:
    """Not even by a key that acts for anybody; and none can be made that acts for such a one."""
    proxy = make(service, acts_for=["*"])
    assert code(charge(service, dataset, proxy["token"], principal=name)) == (403, "forbidden")
    check = {"mechanism": SMALL, "count": 1, "principal": name}
    assert code(service.ask("POST", f"/v1/datasets/{dataset}/checks", proxy["token"], json=check)) == (
        403,
        "forbidden",
    )
    for path in ("/v1/keys", "/v1/principals"):
        reply = service.ask("POST", path, json={"role": "charger", "acts_for": [name]})
        assert code(reply) == (422, "invalid-request")
    assert code(set_to(service, proxy["principal"], acts_for=[name])) == (422, "invalid-request")


@pytest.mark.parametrize("what", ["holds", "sessions", "derived"])
def test_neither_is_anything_else_done_under_such_a_name(service: Live, what: str) -> None:
    """Holds, sessions and what was made of a release follow the rule of charges."""
    name = f"d{next(_number)}"
    service.open(name)
    proxy = make(service, acts_for=["*"])
    assert charge(service, name, proxy["token"]).status_code == 201
    sparse = {"kind": "sparse_vector", "epsilon_threshold": 0.1, "epsilon_answers": 0.2, "max_above": 3}
    body: dict[str, Any] = {
        "holds": {"mechanism": SMALL, "count": 1, "expires_in_s": 60},
        "sessions": {"session": sparse},
        "derived": {"parent": 2, "description": "a plot"},
    }[what]
    for principal, status in (("service", 403), ("p_0123456789abcdef", 403), ("a-user", 201)):
        headers = {"Idempotency-Key": f"x{next(_number)}"}
        asked = {**body, "principal": principal}
        path = f"/v1/datasets/{name}/{what}"
        reply = service.ask("POST", path, proxy["token"], json=asked, headers=headers)
        assert reply.status_code == status, reply.text


def test_an_embedded_ledger_keeps_its_own_names_too() -> None:
    """There are no keys there, and the ledger's own names are nobody's all the same."""
    with Client("memory://") as client:
        each = {"name": "each", "kind": "pure", "epsilon": 1, "scope": "principal/*"}
        life = {"name": "life", "kind": "pure", "epsilon": 9}
        client.create_dataset("d", unit="person", adjacency="add_remove", delta=1e-6, budgets=[life, each])
        with pytest.raises(Forbidden):
            client.charge("d", SMALL, 1, principal="service")
        assert client.charge("d", SMALL, 1, principal="alice")["principal"] == "alice"


def test_a_principal_is_charged_under_its_id_and_never_under_its_name(service: Live, dataset: str) -> None:
    """Its name would have a second odometer, with a second budget."""
    proxy, name = make(service, acts_for=["*"]), f"ann-{next(_number)}"
    ann = make(service, name=name)
    assert charge(service, dataset, ann["token"], PURE).status_code == 201
    for spelt in (name, name.upper()):
        reply = charge(service, dataset, proxy["token"], principal=spelt)
        assert code(reply) == (403, "forbidden")
        assert ann["principal"] in reply.json()["detail"]
    assert charge(service, dataset, proxy["token"], principal=ann["id"]).status_code == 403
    reply = charge(service, dataset, proxy["token"], principal=ann["principal"])
    assert code(reply) == (409, "budget-exceeded")
    assert charge(service, dataset, proxy["token"], principal="a-user-without-a-key").status_code == 201


def test_what_was_charged_under_such_a_name_before_is_answered_again(service: Live, dataset: str) -> None:
    """A reply that was lost before the name was refused is still there; anything new is not."""
    accountant = service.app.state.accountant
    proxy = make(service, acts_for=["*"])
    body = {"mechanism": SMALL, "count": 1, "principal": "service"}
    # As a version before would have: without anybody asking who `service` is.
    prepared = accountant.prepare(dataset, body)
    caller = Caller(proxy["principal"], acts_for=frozenset({"*"}))
    stream, command = accountant.command(dataset, prepared, "lost", caller)
    object.__setattr__(command, "barred", None)
    accountant.receipt(accountant._wait(stream, command), command)
    again = charge(service, dataset, proxy["token"], principal="service", once="lost")
    assert (again.status_code, again.json()["replayed"]) == (200, True)
    assert charge(service, dataset, proxy["token"], principal="service", once="new").status_code == 403


# What is shown


def test_keys_and_principals_are_listed_with_what_an_admin_asks_of_them(service: Live) -> None:
    """Name, team, role, when it was made and ends; of principals how many keys are in use."""
    name = f"list {next(_number)}"
    made = make(service, name=name, team="ads", acts_for=["zed"], expires_in_s=3600)
    one = next(key for key in service.ask("GET", "/v1/keys").json()["items"] if key["id"] == made["id"])
    assert (one["name"], one["team"], one["role"], one["acts_for"]) == (name, "ads", "charger", ["zed"])
    assert one["created"] < one["expires"] == made["expires"]
    assert (one["revoked"], one["expired"], one["rotated"]) == (False, False, None)
    path = f"/v1/principals/{made['principal']}"
    assert service.ask("GET", f"{path}/keys").json() == {"items": [one], "next": None}
    listed = service.ask("GET", "/v1/principals").json()["items"]
    shown = next(item for item in listed if item["id"] == made["principal"])
    assert shown == service.ask("GET", path).json()
    assert (shown["name"], shown["team"], shown["keys"], shown["created"]) == (name, "ads", 1, one["created"])
    bare = service.ask("POST", "/v1/principals", json={"role": "admin", "name": f"{name} 2"}).json()
    assert (bare["keys"], bare["role"]) == (0, "admin")


def test_an_old_client_makes_lists_and_revokes_keys_as_ever(service: Live) -> None:
    """A key is made with a role and a name alone, and each is a new principal of its own."""
    ids = {make(service, "reader")["principal"] for _ in range(3)}
    assert len(ids) == 3
    assert "unknown-key" in service.ask("DELETE", "/v1/keys/k_none").json()["type"]
    assert "unknown-principal" in service.ask("GET", "/v1/principals/ann").json()["type"]


def test_a_service_restarted_knows_every_name_and_key(tmp_path: Path) -> None:
    """All of it is in the store."""
    store = f"sqlite:///{tmp_path}/ledger.sqlite"
    with live(store) as service:
        old = make(service, name="ann")
        new = service.ask("POST", f"/v1/keys/{old['id']}/rotation", json={"overlap_s": 0}).json()
        admin = service.admin
    with live(store) as service:
        assert service.ask("GET", "/v1/me", new["token"]).json()["principal"] == old["principal"]
        assert service.ask("GET", "/v1/me", old["token"]).status_code == 401
        reply = service.ask("POST", "/v1/keys", admin, json={"role": "reader", "name": "Ann"})
        assert code(reply) == (409, "name-taken")

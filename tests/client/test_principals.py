"""Principals and their keys through the client and the command line."""

import json
from collections.abc import Iterator

import pytest
from command_line import Run, runner
from serving import Live, live

from odometer_client import Client
from odometer_client.errors import EditConflict, Forbidden, NameTaken, NotFound, Unauthenticated


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live(key_refresh_s=0.001) as running:
        yield running


@pytest.fixture
def admin(service: Live) -> Iterator[Client]:
    with Client(service.url, service.admin) as client:
        yield client


@pytest.fixture
def run(service: Live) -> Run:
    return runner(ODOMETER_URL=service.url, ODOMETER_KEY=service.admin, COLUMNS="60")


def works(service: Live, token: str) -> bool:
    with Client(service.url, token) as client:
        try:
            client.me()
        except Unauthenticated:
            return False
        return True


def test_a_principal_s_life_in_the_client(service: Live, admin: Client) -> None:
    """Made, keyed, rotated, changed, its name erased."""
    made = admin.create_principal("charger", "carl", team="ads", acts_for=["zed"])
    assert (made["keys"], made["team"], made["acts_for"]) == (0, "ads", ["zed"])
    one = admin.add_key(made["id"])
    two = admin.rotate_key(one["id"], overlap_s=0)
    assert (works(service, one["token"]), works(service, two["token"])) == (False, True)
    three = admin.rotate_key(two["id"], expires_in_s=600)
    assert [key["id"] for key in admin.keys(made["id"])] == [one["id"], two["id"], three["id"]]
    read = admin.principal(made["id"])
    assert (read["name"], read["keys"]) == ("carl", 2)
    changed = admin.set_principal(made["id"], role="reader", team=None, acts_for=[], etag=read["etag"])
    assert (changed["role"], changed["team"], changed["acts_for"]) == ("reader", None, [])
    with pytest.raises(EditConflict):
        admin.set_principal(made["id"], role="admin", team=None, acts_for=[], etag=read["etag"])
    with Client(service.url, two["token"]) as carl, pytest.raises(Forbidden):
        list(carl.principals())
    with pytest.raises(NameTaken) as told:
        admin.create_key("charger", "Carl")
    assert told.value.principals == [made["id"]]
    admin.erase_name(made["id"])
    with pytest.raises(NameTaken, match="erased"):
        admin.create_key("charger", "carl")
    assert next(one for one in admin.principals() if one["id"] == made["id"])["name_erased"]
    with pytest.raises(NotFound):
        admin.add_key("p_none")


@pytest.mark.parametrize("where", ["service", "store"])
def test_a_principal_s_life_on_the_command_line(
    service: Live, run: Run, where: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same through the service and straight in a ledger."""
    more: tuple[str, ...] = ()
    if where == "store":
        url = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.sqlite"
        opened = ("--unit", "p", "--adjacency", "add_remove", "--delta", "1e-6", "--budget", "b:zcdp:rho=1")
        run("dataset", "create", "first", *opened, "--url", url)
        more = ("--store", url)
        run("key", "create", "admin", *more)

    def said(*words: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(run(*words, *more, "--format", "json").stdout)
        return found

    made = said("principal", "create", "charger", "--name", "dora", "--team", "ads", "--acts-for", "zed")
    name = str(made["id"])
    one = said("key", "add", name, "--expires-in-s", "600")
    two = said("key", "rotate", str(one["id"]), "--overlap-s", "60")
    assert (two["replaces"], two["principal"]) == (one["id"], name)
    changed = said("principal", "set", name, "--role", "reader", "--no-team")
    assert (changed["role"], changed["team"], changed["acts_for"]) == ("reader", None, ["zed"])
    assert said("principal", "set", name, "--acts-for-nobody")["acts_for"] == []
    assert said("principal", "show", name)["keys"] == 2
    listed = run("key", "list", *more).stdout
    for title in ("name", "team", "role", "created", "expires", "last rotation"):
        assert title in listed.splitlines()[0]
    assert next(line for line in listed.splitlines() if str(one["id"]) in line).split()[-1] == "rotated"
    assert "dora" in run("principal", "list", *more).stdout
    refused = run("key", "create", "charger", "--name", "Dora", *more, status=1).stderr
    assert f"odometer key add {name}" in refused
    run("key", "revoke", str(two["id"]), *more)
    run("principal", "erase-name", name, *more)
    assert "(erased)" in run("principal", "list", *more).stdout
    run("principal", "set", name, "--team", "ads", "--no-team", *more, status=2)
    assert "no principal" in run("principal", "show", "dora", *more, status=1).stderr


def test_a_lost_admin_key_is_recovered_in_the_store(tmp_path_factory: pytest.TempPathFactory) -> None:
    """While the service runs, which takes the new key; the service itself cannot be asked for one."""
    url = f"sqlite:///{tmp_path_factory.mktemp('ledger')}/ledger.sqlite"
    with live(url, key_refresh_s=0.001) as service:
        made = json.loads(runner()("key", "recover", "--store", url, "--format", "json").stdout)
        assert made["role"] == "admin"
        assert works(service, made["token"])
        more = ("--principal", made["principal"], "--format", "json")
        again = json.loads(runner()("key", "recover", "--store", url, *more).stdout)
        assert again["principal"] == made["principal"]
        runner()("key", "recover", "--store", service.url, status=2)
    runner()("key", "recover", status=2)

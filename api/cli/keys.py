"""`odometer key`: make, list and revoke API keys, through the service or straight in its store."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from api.cli.common import DEFAULT_URL, Format, Key, Output, Url, connected, is_store, out, print_json, stored

if TYPE_CHECKING:
    from api.auth import KeyRing

app = typer.Typer(
    help="Make, list and revoke API keys.",
    no_args_is_help=True,
)
BY: Final = "command-line"
"""Who makes keys offline: whoever may write the ledger's file."""
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Straight in this ledger instead of through the service: sqlite:///path/to/ledger.sqlite, redis://host.",
        show_default=False,
    ),
]


class RoleName(StrEnum):
    """What a key may do; each may do what the ones before it may."""

    reader = "reader"
    charger = "charger"
    admin = "admin"


@app.command()
def create(
    role: Annotated[
        RoleName,
        typer.Argument(
            metavar="ROLE", help="reader, charger or admin: each may do what those before it may."
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Whose it is: kept apart from the ledger's entries.", show_default=False
        ),
    ] = None,
    team: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The team whose odometer and budgets its charges count on.",
            show_default=False,
        ),
    ] = None,
    acts_for: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="A principal on whose behalf it may charge, * for any. May be repeated.",
            show_default=False,
        ),
    ] = None,
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    format_: Output = Format.text,
) -> None:
    """Make an API key. Its token is shown now and never again.

    With --store it works straight in the ledger, without a key: for a lost admin key.
    """
    made: Mapping[str, Any]
    if target := _store(store, url):
        made = _made_in_store(target, {"role": role.value, "name": name, "team": team, "acts_for": acts_for})
    else:
        with connected(url, key) as client:
            made = client.create_key(role.value, name, team=team, acts_for=acts_for or ())
    if format_ is Format.json:
        print_json(made)
        return
    for field in ("id", "role", "principal", "name", "team"):
        if made.get(field):
            out.print(f"{field:<10} {made[field]}")
    if made.get("acts_for"):
        out.print(f"acts for   {', '.join(made['acts_for'])}", soft_wrap=True)
    out.print(f"key (shown once): {made['token']}", soft_wrap=True)


@app.command("list")
def list_(
    store: StoreUrl = None, url: Url = DEFAULT_URL, key: Key = None, format_: Output = Format.text
) -> None:
    """List the API keys, without their tokens."""
    found: list[Mapping[str, Any]]
    if target := _store(store, url):
        with _ring(target) as ring:
            found = list(ring.keys())
    else:
        with connected(url, key) as client:
            found = list(client.keys())
    if format_ is Format.json:
        print_json(found)
        return
    for item in found:
        revoked = "  revoked" if item.get("revoked") else ""
        name = f"  {item['name']}" if item.get("name") else ""
        team = f"  team {item['team']}" if item.get("team") else ""
        acts_for = f"  acts for {', '.join(item['acts_for'])}" if item.get("acts_for") else ""
        about = f"{name}{team}{acts_for}{revoked}"
        out.print(f"{item['id']}  {item['role']:<7}  {item['principal']}{about}", soft_wrap=True)


@app.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, k_…, not its token.")],
    store: StoreUrl = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Make an API key useless, for good."""
    if target := _store(store, url):
        with _ring(target) as ring:
            ring.revoke(key_id, BY)
    else:
        with connected(url, key) as client:
            client.revoke_key(key_id)
    out.print(f"revoked {key_id}")


def _made_in_store(url: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """A key made straight in a ledger, under the rules that the service has for it."""
    from accountant.documents import validated
    from api.operations import NewKey

    with _ring(url) as ring:
        form = validated(NewKey, {name: value for name, value in wanted.items() if value is not None})
        identity, token = ring.create(form.role, form.name, BY, form.team, form.acts_for)
    return {
        "id": identity.key,
        "token": token,
        "role": identity.role.value,
        "principal": identity.principal,
        "name": form.name,
        "team": identity.team,
        "acts_for": sorted(identity.acts_for),
    }


def _store(store: str | None, url: str) -> str | None:
    """The ledger to work on directly, None to go through the service."""
    return store or (url if is_store(url) else None)


@contextmanager
def _ring(url: str) -> Iterator["KeyRing"]:
    from api.auth import KeyRing

    with stored(url) as opened:
        yield KeyRing(opened)

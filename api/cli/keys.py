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
        help="Straight in this ledger instead of through the service: sqlite:///path/to/ledger.sqlite.",
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
            metavar="TEXT", help="Whose it is: kept apart from the ledger, and erasable.", show_default=False
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
        from api.auth import Role

        with _ring(target) as ring:
            identity, token = ring.create(Role(role.value), name, BY)
        made = {
            "id": identity.key,
            "token": token,
            "role": role.value,
            "principal": identity.principal,
            "name": name,
        }
    else:
        with connected(url, key) as client:
            made = client.create_key(role.value, name)
    if format_ is Format.json:
        print_json(made)
        return
    for field in ("id", "role", "principal", "name"):
        if made.get(field):
            out.print(f"{field:<10} {made[field]}")
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
        out.print(f"{item['id']}  {item['role']:<7}  {item['principal']}{name}{revoked}", soft_wrap=True)


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


def _store(store: str | None, url: str) -> str | None:
    """The ledger to work on directly, None to go through the service."""
    return store or (url if is_store(url) else None)


@contextmanager
def _ring(url: str) -> Iterator["KeyRing"]:
    from api.auth import KeyRing

    with stored(url) as opened:
        yield KeyRing(opened)

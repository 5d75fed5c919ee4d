"""Parses the URL of a Redis store: nodes, login, options."""

import math
import re
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote

Node = tuple[str, int]
"""Host and port."""
Kind = Literal["plain", "sentinel", "cluster"]

FORMS: Final = (
    "redis://[[user]:password@]host[:port][/db]",
    "rediss://… (the same over TLS)",
    "redis+sentinel://[[user]:password@]host:26379,host:26379/service[/db]",
    "redis+cluster://[[user]:password@]host:port,host:port",
)
OPTIONS: Final = {
    "replicas": "how many replicas must have each append before it counts (0 to 16; default 0)",
    "wait_ms": "milliseconds to wait for them (1 to 600000; default 1000)",
    "timeout_s": "seconds that one read or write on the network may take (0.05 to 600; default 5)",
    "prefix": "what every key of this ledger starts with (letters, digits, . _ : - ; default po)",
}
_SCHEMES: Final[dict[str, tuple[Kind, bool]]] = {
    "redis": ("plain", False),
    "rediss": ("plain", True),
    "redis+sentinel": ("sentinel", False),
    "redis+cluster": ("cluster", False),
}
_PORTS: Final = {"plain": 6379, "sentinel": 26379, "cluster": 6379}
NODES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Address:
    """A Redis store's address. Its text form shows no password."""

    kind: Kind
    nodes: tuple[Node, ...]
    tls: bool = False
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    replicas: int = 0
    wait_ms: int = 1000
    timeout_s: float = 5.0
    prefix: str = "po"


def parse(url: str) -> Address:
    """Parse `url`. ValueError says which form is valid and never shows the password."""
    # Not urllib.parse.urlsplit: its errors quote the password.
    scheme, _, rest = url.partition("://")
    kind, tls = _SCHEMES[scheme]
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    username, password = _login(login)
    service, db = _path(kind, path)
    if kind == "cluster" and (service or db):
        raise _wrong("a cluster has one database: leave out what stands after the hosts")
    nodes = tuple(_node(host, _PORTS[kind]) for host in hosts.split(","))
    if kind == "plain" and len(nodes) > 1:
        raise _wrong("it names several hosts; a group is redis+sentinel:// or redis+cluster://")
    if len(nodes) > NODES_MAX:
        raise _wrong(f"it names more than {NODES_MAX} hosts")
    options = _options(query)
    address = Address(
        kind,
        nodes,
        tls,
        service,
        db,
        username,
        password,
        replicas=int(_number(options, "replicas", 0, 16, 0)),
        wait_ms=int(_number(options, "wait_ms", 1, 600_000, 1000)),
        timeout_s=_number(options, "timeout_s", 0.05, 600, 5.0, whole=False),
        prefix=options.get("prefix", "po"),
    )
    if re.fullmatch(r"[A-Za-z0-9._:-]{1,64}", address.prefix) is None:
        raise _wrong("prefix takes 1 to 64 letters, digits and . _ : -")
    if address.replicas and address.wait_ms >= address.timeout_s * 1000:
        raise _wrong(
            f"wait_ms ({address.wait_ms}) must be less than timeout_s ({address.timeout_s:g} s), "
            "or the answer would come too late to be read"
        )
    return address


def _wrong(why: str) -> ValueError:
    forms = "\n".join(f"  {form}" for form in FORMS)
    return ValueError(
        f"The URL of the Redis store is not valid: {why}. A Redis store is named like\n{forms}\n"
        "In a user or a password, / is written %2F, ? %3F, @ %40, : %3A, # %23 and % %25."
    )


def _login(login: str) -> tuple[str | None, str | None]:
    if not login:
        return None, None
    username, separator, password = login.partition(":")
    if not separator or not password:
        raise _wrong("a login is user:password@ or :password@")
    return unquote(username) or None, unquote(password)


def _path(kind: Kind, path: str) -> tuple[str, int]:
    """The Sentinel service ("" otherwise) and the number of the database."""
    service, _, database = path.partition("/") if kind == "sentinel" else ("", "", path)
    if kind == "sentinel" and not service:
        raise _wrong("the name of the Sentinel service stands after the hosts, as in /mymaster")
    if database and re.fullmatch(r"[0-9]{1,4}", database) is None:
        raise _wrong("what stands after the host is the number of a database, as in /0")
    return unquote(service), int(database or 0)


def _node(text: str, default_port: int) -> Node:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:@/?#\s]+)(?::([0-9]{1,5}))?", text)
    if found is None:
        raise _wrong("each host is a name or an address, then maybe : and a port; IPv6 stands in [ ]")
    port = int(found[2] or default_port)
    if not 0 < port < 65536:
        raise _wrong("a port lies between 1 and 65535")
    return found[1].strip("[]"), port


def _options(query: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS:
            # A name that looks like no option may be part of a password, so it is not shown.
            shown = f"option {name!r}" if re.fullmatch(r"[a-z_]{1,20}", name) else "such option"
            listed = "\n".join(f"  {option}: {meaning}" for option, meaning in OPTIONS.items())
            raise ValueError(f"A Redis store has no {shown}. The options are\n{listed}")
        if name in options:
            raise _wrong(f"{name} stands there twice")
        options[name] = value
    return options


def _number(
    options: dict[str, str], name: str, least: float, most: float, default: float, *, whole: bool = True
) -> float:
    text = options.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise _wrong(f"{name} must be {kind} from {least:g} to {most:g}")
    return value

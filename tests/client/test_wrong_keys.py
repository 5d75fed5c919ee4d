"""A key or an address that cannot be one is refused when the client is made; a failure says where it went."""

import httpx
import pytest

from odometer_client import Client
from odometer_client.errors import Unreachable

NO_KEYS = [
    "",
    " ",
    "po_abc\n",
    " po_abc",
    "po_a bc",
    "po_abc\r\nX: y",
    "po_ä",
    "po_\u200babc",
    "po_\x00",
    "\ufeffpo_abc",
]


@pytest.mark.parametrize("key", NO_KEYS, ids=repr)
def test_what_cannot_be_a_key_is_refused_before_anything_is_sent(key: str) -> None:
    """It is no unknown outcome: the words say that nothing was sent, and none of the key."""
    sent: list[httpx.Request] = []
    transport = httpx.MockTransport(lambda request: (sent.append(request), httpx.Response(200))[1])
    with pytest.raises(ValueError, match="nothing was sent") as told:
        Client("http://127.0.0.1:1", key, http_transport=transport)
    assert not sent
    assert "abc" not in str(told.value)


@pytest.mark.parametrize(
    "url", ["http://", "https://", "http:///x", "http://:8790", "http://host:99999", "http://host:0"]
)
def test_a_url_without_a_host_is_refused_when_the_client_is_made(url: str) -> None:
    """It would be found with the first charge, as an outcome that nobody knows."""
    with pytest.raises(ValueError, match="names no host"):
        Client(url, "po_abc")


@pytest.mark.parametrize("method", ["datasets", "charge"])
def test_what_is_unreachable_is_named(method: str) -> None:
    """The URL as it was given, without who signs in."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    client = Client(
        "http://me:secret@127.0.0.1:1/base", "po_abc", attempts=1, http_transport=httpx.MockTransport(refuse)
    )
    calls = {
        "charge": lambda: client.charge("d", {"kind": "pure", "epsilon": 1}, 1),
        "datasets": lambda: list(client.datasets()),
    }
    with pytest.raises(Unreachable) as told:
        calls[method]()
    assert "127.0.0.1:1/base" in str(told.value)
    assert "secret" not in str(told.value)

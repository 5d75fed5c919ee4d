"""What a browser keeps in place of an API key, on a real service: it ends, everywhere, when it should."""

import contextlib
from collections.abc import Iterator

import httpx
import pytest
from serving import Live, live

from odometer_accountant.service.api_keys import KeyRing, Role
from odometer_accountant.service.sign_ins import AT_ONCE, SignIns
from odometer_accountant.stores import Store, open_store
from privacy_odometer.raw_request import COOKIE

HOUR = 3600.0


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory://")
    yield store
    store.close()


@pytest.fixture
def ring(store: Store) -> KeyRing:
    return KeyRing(store, refresh_s=0.0)


@pytest.fixture
def token(ring: KeyRing) -> str:
    token = ring.create_first()
    assert token is not None
    return token


@pytest.fixture
def doors(store: Store, ring: KeyRing, clock: Clock) -> SignIns:
    return SignIns(store, ring, HOUR, clock)


def opened(doors: SignIns, token: str) -> str:
    ticket = doors.open(token)
    assert ticket is not None
    return ticket


def test_a_ticket_is_its_keys_and_does_not_hold_it(doors: SignIns, token: str, store: Store) -> None:
    """Nor does the store hold what would make one."""
    ticket = opened(doors, token)
    who = doors.identify(ticket)
    assert who is not None
    assert who.role is Role.admin
    assert token not in ticket
    notes = store.notes([f"~sign-in/{who.key}/{place}" for place in range(AT_ONCE)])
    assert len(notes) == 1
    assert ticket.split(".")[2] not in str(notes)


def test_no_unknown_key_opens(doors: SignIns) -> None:
    assert doors.open("po_unknown") is None


def test_it_ends_after_its_time(doors: SignIns, token: str, clock: Clock) -> None:
    ticket = opened(doors, token)
    clock.time += HOUR - 1
    assert doors.identify(ticket) is not None
    clock.time += 1
    assert doors.identify(ticket) is None


def test_it_does_not_live_longer_when_the_clock_goes_back(doors: SignIns, token: str, clock: Clock) -> None:
    ticket = opened(doors, token)
    clock.time -= 10 * HOUR
    assert doors.identify(ticket) is None


def test_signing_out_ends_it_in_every_process(
    doors: SignIns, token: str, store: Store, ring: KeyRing, clock: Clock
) -> None:
    ticket, other = opened(doors, token), opened(doors, token)
    elsewhere = SignIns(store, ring, HOUR, clock)
    assert elsewhere.identify(ticket) is not None
    doors.close(ticket)
    assert elsewhere.identify(ticket) is None
    assert elsewhere.identify(other) is not None
    doors.close(ticket)  # once more, and what is there stays
    assert elsewhere.identify(other) is not None


def test_revoking_the_key_ends_it(doors: SignIns, token: str, ring: KeyRing) -> None:
    reader, its_token = ring.create(Role.reader, None, "test")
    ticket = opened(doors, its_token)
    ring.revoke(reader.key, "test")
    assert doors.identify(ticket) is None
    assert doors.open(its_token) is None


def test_one_browser_too_many_ends_the_oldest(doors: SignIns, token: str, clock: Clock) -> None:
    """So that nobody fills the store by signing in."""
    tickets = []
    for _ in range(AT_ONCE + 1):
        tickets.append(opened(doors, token))
        clock.time += 1
    alive = [ticket for ticket in tickets if doors.identify(ticket) is not None]
    assert alive == tickets[1:]


def test_what_is_no_ticket_is_nobodys(doors: SignIns, token: str, store: Store) -> None:
    ticket = opened(doors, token)
    key, place, secret = ticket.split(".")
    forged = [
        f"{key}.{place}.{'A' * 43}",
        f"{key}.15.{secret}",
        f"{key}.99.{secret}",
        f"k_0000000000000000.{place}.{secret}",
        f"{key}.{place}.{secret}x",
        f"{ticket}\n",
        token,
        "",
    ]
    assert [doors.identify(each) for each in forged] == [None] * len(forged)
    assert doors.identify(ticket) is not None


# The whole service


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        running.open("d")
        yield running


@contextlib.contextmanager
def sign_in(service: Live, token: str) -> Iterator[httpx.Client]:
    """A browser that is signed in."""
    with httpx.Client(base_url=service.url, timeout=60) as browser:
        reply = browser.post("/sign-in", data={"key": token}, headers={"Origin": service.url})
        assert reply.status_code == 303
        yield browser


def test_a_stolen_cookie_is_worth_nothing_after_sign_out(service: Live) -> None:
    with sign_in(service, service.admin) as browser:
        stolen = dict(browser.cookies)
        assert set(stolen) == {COOKIE}
        assert browser.get("/v1/me").status_code == 200
        browser.post("/sign-out", headers={"Origin": service.url})
        assert not dict(browser.cookies)
    for path, status in (("/v1/me", 401), ("/v1/datasets/d/odometer", 401), ("/", 303)):
        assert httpx.get(service.url + path, cookies=stolen).status_code == status


def test_a_sign_in_ends_with_its_key(service: Live) -> None:
    made = service.make_key("reader")
    with sign_in(service, made["token"]) as browser:
        assert browser.get("/v1/me").json()["key"] == made["id"]
        assert service.ask("DELETE", f"/v1/keys/{made['id']}").status_code == 204
        assert browser.get("/v1/me").status_code == 401
        assert browser.get("/").status_code == 303


def test_the_cookie_is_no_bearer_and_the_key_no_cookie(service: Live) -> None:
    with sign_in(service, service.admin) as browser:
        ticket = browser.cookies[COOKIE]
    assert service.ask("GET", "/v1/me", ticket).status_code == 401
    for name in (COOKIE, "odometer_key", f"__Host-{COOKIE}"):
        assert httpx.get(f"{service.url}/v1/me", cookies={name: service.admin}).status_code == 401


@pytest.mark.parametrize("site", ["same-site", "cross-site"])
def test_another_page_reads_nothing_with_the_cookie(service: Live, site: str) -> None:
    """Such as one on another port of the same host, whose requests carry it."""
    with sign_in(service, service.admin) as browser:
        assert browser.get("/v1/me", headers={"Sec-Fetch-Site": site}).status_code == 401
        assert browser.get("/v1/me", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_a_sign_in_has_the_role_of_its_key(service: Live) -> None:
    with sign_in(service, service.keys["reader"]) as browser:
        assert browser.get("/v1/datasets").status_code == 200
        assert browser.get("/v1/keys").status_code == 403


def test_a_large_cookie_is_a_stranger(service: Live) -> None:
    for cookie in (f"{COOKIE}={'x' * 30_000}", ";" * 30_000, f"{COOKIE}=" * 2000):
        reply = httpx.get(f"{service.url}/v1/me", headers={"Cookie": cookie})
        assert reply.status_code == 401


PLAIN = (
    ("HEAD", "/v1/datasets"),
    ("OPTIONS", "/v1/datasets/d/charges"),
    ("GET", "/v1/datasets/d/charges"),
    ("PATCH", "/v1/datasets"),
    ("GET", "/nowhere"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/problems/not-found"),
    ("GET", "/problems/none"),
    ("GET", "/"),
    ("HEAD", "/"),
    ("POST", "/"),
    ("OPTIONS", "/sign-in"),
    ("POST", "/sign-in"),
    ("GET", "/sign-in"),
    ("GET", "/sign-out"),
    ("POST", "/sign-out"),
    ("GET", "/datasets/d"),
    ("GET", "/datasets/No"),
    ("GET", "/docs"),
    ("GET", "/favicon.ico"),
    ("GET", "/assets/x/y"),
)


@pytest.mark.parametrize(("method", "path"), PLAIN)
def test_no_answer_is_kept_or_taken_for_another_type(service: Live, method: str, path: str) -> None:
    reply = service.ask(method, path, None)
    assert reply.headers.get_list("cache-control") == ["no-store"]
    assert reply.headers.get_list("x-content-type-options") == ["nosniff"]

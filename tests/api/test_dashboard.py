"""The dashboard without a browser: who gets in, what headers go out, and that nothing names another host."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from odometer_accountant.errors import StoreUnavailable
from privacy_odometer.dashboard import assets, render, router
from privacy_odometer.dashboard.pages import WRONG_KEY
from privacy_odometer.raw_request import COOKIE, SECURE_COOKIE

TOKEN = "po_right"
TICKET = "k_1.0.right"
HERE = {"origin": "http://127.0.0.1"}
"""What a browser says of a form that a page of the service sent."""


@dataclass(frozen=True)
class Somebody:
    principal: str = 'p_1"><script>alert(1)</script>'
    role: str = "reader"


class Browser:
    """Requests straight into the app, one event loop each; sends `cookies` and follows nothing."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.cookies: dict[str, str] = {}

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1", cookies=self.cookies
            ) as client:
                return await client.request(method, path, **more)

        return asyncio.run(send())

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.request("GET", path, **more)

    def post(self, path: str, headers: dict[str, str] = HERE, **more: Any) -> httpx.Response:
        return self.request("POST", path, headers=headers, **more)


class FakeDoors:
    """One key and one ticket; `away` is the word for a store that does not answer."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def open(self, token: str) -> str | None:
        if token == "po_away":
            raise StoreUnavailable("The ledger did not answer.")
        return TICKET if token == TOKEN else None

    def identify(self, ticket: str) -> Somebody | None:
        if ticket == "away":
            raise StoreUnavailable("The ledger did not answer.")
        return Somebody() if ticket == TICKET and ticket not in self.closed else None

    def close(self, ticket: str) -> None:
        if ticket == "away":
            raise StoreUnavailable("The ledger did not answer.")
        self.closed.append(ticket)


@pytest.fixture
def browser() -> Browser:
    return Browser(_app())


def _app(**more: Any) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None)
    doors = FakeDoors()
    app.include_router(router(lambda: doors, **more))
    return app


@pytest.fixture
def signed_in(browser: Browser) -> Browser:
    browser.cookies[COOKIE] = TICKET
    return browser


def _asset_urls(html: str) -> list[str]:
    return re.findall(r'(?:src|href)="(/assets/[^"]+)"', html)


@pytest.mark.parametrize(
    ("path", "to"),
    [("/", "/sign-in"), ("/datasets/patients", "/sign-in?next=%2Fdatasets%2Fpatients")],
)
def test_a_page_sends_a_stranger_to_sign_in(browser: Browser, path: str, to: str) -> None:
    reply = browser.get(path)
    assert (reply.status_code, reply.headers["location"]) == (303, to)


@pytest.mark.parametrize("ticket", ["ended", TOKEN, "x" * 8000, "", "é"])
def test_another_cookie_is_a_stranger(browser: Browser, ticket: str) -> None:
    """The API key itself is no ticket: a browser that an earlier version gave it to signs in again."""
    browser.cookies[COOKIE] = ticket.encode().decode("latin-1") if ticket.isascii() else "%C3%A9"
    assert browser.get("/").headers["location"] == "/sign-in"


def test_the_right_key_sets_a_cookie_no_script_and_no_other_site_can_use(browser: Browser) -> None:
    """And which is not the key: pages on other ports of the same host are sent it too."""
    reply = browser.post("/sign-in", data={"key": f" {TOKEN}\n", "next": "/datasets/a"})
    assert (reply.status_code, reply.headers["location"]) == (303, "/datasets/a")
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}={TICKET};")
    assert TOKEN not in str(reply.headers)
    flags = {flag.strip().lower() for flag in cookie.split(";")[1:]}
    assert flags == {"httponly", "samesite=strict", "path=/"}


SECURE = (
    ("https://127.0.0.1/sign-in", "https://127.0.0.1", False),  # the proxy said so, and was believed
    ("/sign-in", "https://127.0.0.1", False),  # the browser says so
    ("/sign-in", "https://127.0.0.1", True),  # the setting says so
)


@pytest.mark.parametrize(("path", "origin", "https"), SECURE)
def test_over_https_the_cookie_is_one_that_nothing_else_can_set(path: str, origin: str, https: bool) -> None:
    reply = Browser(_app(https=https)).post(path, data={"key": TOKEN}, headers={"origin": origin})
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"__Host-odometer_session={TICKET};")
    flags = {flag.strip().lower() for flag in cookie.split(";")[1:]}
    assert flags == {"httponly", "samesite=strict", "path=/", "secure"}


@pytest.mark.parametrize(("name", "status"), [(COOKIE, 303), (SECURE_COOKIE, 200)])
def test_where_https_is_known_a_plain_cookie_is_not_ours(name: str, status: int) -> None:
    browser = Browser(_app(https=True))
    browser.cookies[name] = TICKET
    assert browser.get("/").status_code == status


@pytest.mark.parametrize("key", ["po_wrong", "", "po_right; Path=/x", "é", "x" * 300, "\r\nset-cookie: a=b"])
def test_every_wrong_key_gets_the_same_words_and_no_cookie(browser: Browser, key: str) -> None:
    reply = browser.post("/sign-in", data={"key": key})
    assert reply.status_code == 401
    assert WRONG_KEY in reply.text
    assert "set-cookie" not in reply.headers
    assert reply.text == browser.post("/sign-in", data={"key": "po_other"}).text


OTHERS = (
    {},
    {"origin": "null"},
    {"origin": ""},
    {"origin": "http://evil.example"},
    {"origin": "http://127.0.0.1.evil.example"},
    {"origin": "http://127.0.0.1:8000"},
    {"origin": "https://127.0.0.1:8000"},
    {"origin": "http://[::1"},
    {"origin": "file://127.0.0.1"},
    {"origin": "127.0.0.1"},
    {"origin": "http://127.0.0.1@evil.example"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "same-site", **HERE},
    {"sec-fetch-site": "cross-site", **HERE},
    {"sec-fetch-site": "same-origin", "origin": "http://evil.example"},
    {"sec-fetch-site": "same-origin", "origin": "null"},
)


@pytest.mark.parametrize("headers", OTHERS, ids=str)
def test_no_other_page_signs_a_person_in_or_out(signed_in: Browser, headers: dict[str, str]) -> None:
    """Nor one on another port of the same host; and what says nothing of where it comes from is not taken."""
    for path in ("/sign-in", "/sign-out"):
        reply = signed_in.post(path, data={"key": TOKEN}, headers=headers)
        assert reply.status_code == 403
        assert "set-cookie" not in reply.headers
    assert signed_in.get("/").status_code == 200


OWN = (
    ("http://127.0.0.1", HERE),
    ("http://127.0.0.1", {"origin": "http://127.0.0.1:80"}),
    ("http://127.0.0.1", {"sec-fetch-site": "same-origin"}),
    ("http://127.0.0.1", {"sec-fetch-site": "same-origin", **HERE}),
    ("http://127.0.0.1:8790", {"origin": "http://127.0.0.1:8790"}),
    ("http://[::1]:8790", {"origin": "http://[::1]:8790"}),
    ("https://Odometer.example", {"origin": "https://odometer.example"}),
)


@pytest.mark.parametrize(("base", "headers"), OWN)
def test_a_page_of_the_service_signs_in(browser: Browser, base: str, headers: dict[str, str]) -> None:
    assert browser.post(f"{base}/sign-in", data={"key": TOKEN}, headers=headers).status_code == 303


def test_where_https_is_known_a_page_over_plain_http_is_another_site() -> None:
    assert Browser(_app(https=True)).post("/sign-in", data={"key": TOKEN}).status_code == 403


@pytest.mark.parametrize(
    "target",
    [
        "https://example.org/",
        "//example.org",
        "/\\example.org",
        "/v1/me",
        "javascript:alert(1)",
        "/datasets/../x",
    ],
)
def test_sign_in_redirects_to_pages_of_the_dashboard_only(browser: Browser, target: str) -> None:
    assert browser.post("/sign-in", data={"key": TOKEN, "next": target}).headers["location"] == "/"


FORM = {"content-type": "application/x-www-form-urlencoded", **HERE}
FORMS: dict[str, tuple[int, dict[str, Any]]] = {
    "large": (413, {"data": {"key": "x" * 5000}}),
    "nine fields": (400, {"content": "&".join(f"a{n}=1" for n in range(9)), "headers": FORM}),
    "a thousand fields": (400, {"content": "a&" * 1000, "headers": FORM}),
    "no UTF-8": (400, {"content": b"key=\xff", "headers": FORM}),
    "no UTF-8, escaped": (400, {"content": b"key=%ff", "headers": FORM}),
    "several parts": (400, {"files": {"key": "po_right"}}),
    "JSON": (400, {"json": {"key": TOKEN}}),
    "no type": (400, {"content": f"key={TOKEN}"}),
    "nothing": (401, {"content": "", "headers": FORM}),
    "eight fields": (303, {"content": f"a&b&c&d&e&f&g&key={TOKEN}", "headers": FORM}),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_that_is_not_ours_is_a_page_that_says_so(browser: Browser, name: str) -> None:
    status, more = FORMS[name]
    reply = browser.post("/sign-in", **more)
    assert reply.status_code == status
    assert reply.headers["cache-control"] == "no-store"
    assert ("set-cookie" in reply.headers) == (status == 303)


def test_sign_out_ends_the_sign_in_and_not_only_the_cookie(signed_in: Browser) -> None:
    reply = signed_in.post("/sign-out")
    assert (reply.status_code, reply.headers["location"]) == (303, "/sign-in")
    assert f'{COOKIE}="";' in reply.headers["set-cookie"]
    assert "Max-Age=0" in reply.headers["set-cookie"]
    assert signed_in.get("/").status_code == 303  # the browser here kept the cookie


def test_sign_out_while_the_store_is_away_forgets_the_cookie_and_says_so(browser: Browser) -> None:
    browser.cookies[COOKIE] = "away"
    reply = browser.post("/sign-out")
    assert reply.status_code == 503
    assert "Max-Age=0" in reply.headers["set-cookie"]


def test_a_second_sign_in_ends_the_first(signed_in: Browser) -> None:
    assert signed_in.post("/sign-in", data={"key": TOKEN}).status_code == 303
    assert signed_in.get("/").status_code == 303


def test_the_key_that_an_earlier_version_kept_is_forgotten(browser: Browser) -> None:
    browser.cookies["odometer_key"] = TOKEN
    assert browser.get("/").status_code == 303
    reply = browser.get("/sign-in")
    assert reply.headers["set-cookie"].startswith('odometer_key="";')
    assert "Max-Age=0" in reply.headers["set-cookie"]


@pytest.mark.parametrize("path", ["/", "/datasets/patients", "/sign-in", "/docs", "/datasets/No%20Slug"])
def test_every_page_forbids_inline_scripts_framing_and_other_hosts(signed_in: Browser, path: str) -> None:
    reply = signed_in.get(path)
    policy = reply.headers["content-security-policy"]
    for part in ("default-src 'self'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert part in policy.split("; ")
    assert "http" not in policy
    assert ("'unsafe-inline'" in policy) == (path == "/datasets/patients")  # plotly's styles, nothing else
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+=|javascript:", reply.text)


def test_a_principal_is_escaped(signed_in: Browser) -> None:
    text = signed_in.get("/").text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_a_name_that_is_no_slug_is_a_page_that_says_so(signed_in: Browser) -> None:
    reply = signed_in.get("/datasets/..%2Fx")
    assert reply.status_code == 404
    assert signed_in.get("/datasets/UPPER").status_code == 404


def test_an_unreadable_store_is_a_503_page_and_no_redirect(browser: Browser) -> None:
    browser.cookies[COOKIE] = "away"
    reply = browser.get("/")
    assert reply.status_code == 503
    assert "The ledger did not answer." in reply.text
    assert browser.post("/sign-in", data={"key": "po_away"}).status_code == 503


@pytest.mark.parametrize("path", ["/", "/datasets/patients", "/sign-in", "/docs"])
def test_every_asset_of_a_page_is_served_and_cached_for_ever(signed_in: Browser, path: str) -> None:
    urls = _asset_urls(signed_in.get(path).text)
    assert urls
    for url in urls:
        reply = signed_in.get(url)
        assert reply.status_code == 200, url
        assert "immutable" in reply.headers["cache-control"]
        again = signed_in.get(url, headers={"if-none-match": reply.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_modules_import_only_modules_that_exist() -> None:
    names = {path.name for path in assets.STATIC.iterdir()}
    for path in assets.STATIC.glob("*.js"):
        for target in re.findall(r'from "([^"]+)"', path.read_text()):
            assert target.removeprefix("./") in names, f"{path.name} imports {target}"


def test_a_page_from_before_an_upgrade_gets_current_files_uncached(browser: Browser) -> None:
    reply = browser.get("/assets/app-000000000000/odometer.css")
    assert (reply.status_code, reply.headers["cache-control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "path",
    [
        "/assets/app-1/..%2Fpages.py",
        "/assets/app-1/../pages.py",
        "/assets/plotly-0.0.0/plotly.min.js",
        "/assets/x/y",
    ],
)
def test_nothing_but_the_listed_files_is_served(browser: Browser, path: str) -> None:
    assert browser.get(path).status_code == 404


def test_assets_are_compressed_for_those_who_can_read_it(browser: Browser) -> None:
    url = assets.url("plotly.min.js")
    packed = browser.get(url, headers={"accept-encoding": "gzip"})
    plain = browser.get(url, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content


def test_no_file_of_ours_names_another_host() -> None:
    templates = render.Path(render.__file__).parent / "templates"
    for path in [*assets.STATIC.iterdir(), *templates.iterdir()]:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|[\"'(]//", text), path.name


def test_no_script_of_ours_makes_markup_from_text() -> None:
    for path in assets.STATIC.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", path.read_text()
        )


def test_the_dashboard_is_not_part_of_the_api_schema(browser: Browser) -> None:
    assert browser.get("/openapi.json").json()["paths"] == {}

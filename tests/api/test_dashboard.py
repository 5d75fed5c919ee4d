"""The dashboard without a browser: who gets in, what headers go out, and that nothing names another host."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from accountant.errors import StoreUnavailable
from api.dashboard import COOKIE, assets, render, router
from api.dashboard.pages import WRONG_KEY

TOKEN = "po_right"


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

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.request("POST", path, **more)


def _identify(token: str) -> Somebody | None:
    if token == "po_store_is_away":
        raise StoreUnavailable("The ledger did not answer.")
    return Somebody() if token == TOKEN else None


@pytest.fixture
def browser() -> Browser:
    app = FastAPI(docs_url=None, redoc_url=None)
    app.include_router(router(_identify))
    return Browser(app)


@pytest.fixture
def signed_in(browser: Browser) -> Browser:
    browser.cookies[COOKIE] = TOKEN
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


def test_a_revoked_cookie_is_a_stranger(browser: Browser) -> None:
    browser.cookies[COOKIE] = "po_revoked"
    assert browser.get("/").headers["location"] == "/sign-in"


def test_the_right_key_sets_a_cookie_no_script_and_no_other_site_can_use(browser: Browser) -> None:
    reply = browser.post("/sign-in", data={"key": f" {TOKEN}\n", "next": "/datasets/a"})
    assert (reply.status_code, reply.headers["location"]) == (303, "/datasets/a")
    cookie = reply.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}={TOKEN};")
    flags = {flag.strip().lower() for flag in cookie.split(";")[1:]}
    assert flags == {"httponly", "samesite=strict", "path=/"}


def test_the_cookie_is_secure_over_https(browser: Browser) -> None:
    reply = browser.post("https://127.0.0.1/sign-in", data={"key": TOKEN})
    assert "secure" in reply.headers["set-cookie"].lower()


@pytest.mark.parametrize("key", ["po_wrong", "", "po_right; Path=/x", "é", "x" * 300, "\r\nset-cookie: a=b"])
def test_every_wrong_key_gets_the_same_words_and_no_cookie(browser: Browser, key: str) -> None:
    reply = browser.post("/sign-in", data={"key": key})
    assert reply.status_code == 401
    assert WRONG_KEY in reply.text
    assert "set-cookie" not in reply.headers
    assert reply.text == browser.post("/sign-in", data={"key": "po_other"}).text


def test_another_site_cannot_sign_a_person_in(browser: Browser) -> None:
    reply = browser.post("/sign-in", data={"key": TOKEN}, headers={"sec-fetch-site": "cross-site"})
    assert reply.status_code == 401
    assert "set-cookie" not in reply.headers


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


def test_an_oversized_form_is_refused(browser: Browser) -> None:
    assert browser.post("/sign-in", data={"key": "x" * 5000}).status_code == 413


def test_sign_out_forgets_the_key(signed_in: Browser) -> None:
    reply = signed_in.post("/sign-out")
    assert (reply.status_code, reply.headers["location"]) == (303, "/sign-in")
    assert f'{COOKIE}="";' in reply.headers["set-cookie"]
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
    browser.cookies[COOKIE] = "po_store_is_away"
    reply = browser.get("/")
    assert reply.status_code == 503
    assert "The ledger did not answer." in reply.text
    assert browser.post("/sign-in", data={"key": "po_store_is_away"}).status_code == 503


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

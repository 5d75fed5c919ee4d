"""A real service, a real headless Chromium, and pages that are watched for errors and for other hosts."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect, sync_playwright

from odometer_client import Client
from odometer_client.testing import Service, serve, temporary_sqlite

ARTIFACTS = Path(__file__).parents[2] / "artifacts"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # there is no network to fall back on
]


WAIT_MS = 30_000
"""Longest wait for what should appear: a busy machine of two cores is slow, not wrong."""
expect.set_options(timeout=WAIT_MS)
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
"""The machine's own browser: Playwright's download is not used. Absent, the tests fail."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service on a SQLite ledger, fresh for each file of tests."""
    with temporary_sqlite() as store, serve(store) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Service) -> Iterator[Client]:
    with Client(service.url, service.admin_key) as client:
        yield client


@dataclass
class Visitor:
    """A page of its own context, with all that went wrong on it. `expected` are the faults a test causes."""

    page: Page
    url: str
    key: str
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    expected: tuple[str, ...] = ()

    def watch(self, context: BrowserContext) -> None:
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("console", lambda message: self._heard(message.type, message.text))
        context.on("request", self._asked)

    def _heard(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.complaints.append(f"{kind}: {text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("data:", "blob:")):
            self.hosts.add(urlsplit(request.url).netloc)

    def open(self, path: str) -> None:
        self.page.goto(self.url + path)

    def sign_in(self, key: str | None = None) -> None:
        self.page.get_by_label("API key").fill(key or self.key)
        self.page.get_by_role("button", name="Sign in").click()

    def picture(self, name: str) -> None:
        """A screenshot of the whole page, kept in artifacts/ for whoever wants to look."""
        ARTIFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True, animations="disabled")

    def assert_clean(self) -> None:
        surprises = [each for each in self.complaints if not any(known in each for known in self.expected)]
        assert surprises == []
        assert self.hosts == {urlsplit(self.url).netloc}


@pytest.fixture
def visitor(browser: Browser, service: Service) -> Iterator[Visitor]:
    """Not signed in; at the end: no console error or warning, no exception, no other host."""
    assert service.admin_key is not None
    context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    guest = Visitor(page, service.url, service.admin_key)
    guest.watch(context)
    yield guest
    context.close()
    guest.assert_clean()

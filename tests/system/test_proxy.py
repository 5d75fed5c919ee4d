"""deploy/nginx.conf on a real nginx in front of a real service: what it lets through, and what it says."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Live, live

CONFIG = Path(__file__).parents[2] / "deploy" / "nginx.conf"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "nginx"
WAIT_S = 30


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def configured(folder: Path, port: int, upstream: str) -> Path:
    """The file with other addresses: `resolve` needs Docker's DNS and a newer nginx than many have."""
    text = CONFIG.read_text("utf-8")
    for old, new in (
        ("server api:8790 resolve ", f"server {upstream} "),
        ("listen 8790 ", f"listen 127.0.0.1:{port} "),
        ("/tmp/", f"{folder}/"),
        ("worker_processes auto;", "worker_processes 1;"),
    ):
        assert old in text
        text = text.replace(old, new)
    path = folder / "nginx.conf"
    path.write_text(text, "utf-8")
    return path


def started(folder: Path, upstream: str) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    config = configured(folder, port, upstream)
    command = [NGINX, "-e", "stderr", "-c", str(config)]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    process = subprocess.Popen([*command, "-g", "daemon off;"], stderr=subprocess.DEVNULL)
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return process, f"http://127.0.0.1:{port}"
    process.kill()
    raise AssertionError("nginx did not start")


@pytest.fixture(scope="module")
def service() -> Iterator[Live]:
    with live() as running:
        running.open("d")
        yield running


@pytest.fixture
def proxy(service: Live, tmp_path: Path) -> Iterator[str]:
    process, url = started(tmp_path, service.url.removeprefix("http://"))
    yield url
    process.terminate()
    process.wait(WAIT_S)


def problem(reply: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert (reply.status_code, reply.json()["type"]) == (status, f"/problems/{code}")
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers.get_list("cache-control") == ["no-store"]
    assert reply.headers.get_list("x-content-type-options") == ["nosniff"]
    body: dict[str, Any] = reply.json()
    return body


def test_a_charge_and_a_sign_in_go_through(service: Live, proxy: str) -> None:
    """The service sees the address that the browser used, or it would refuse the form."""
    headers = {"Authorization": f"Bearer {service.admin}", "Idempotency-Key": "through"}
    body = {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.0}, "count": 1}
    assert httpx.post(f"{proxy}/v1/datasets/d/charges", json=body, headers=headers).status_code == 201
    with httpx.Client(base_url=proxy) as browser:
        form = {"key": service.admin}
        assert browser.post("/sign-in", data=form, headers={"Origin": proxy}).status_code == 303
        assert browser.get("/").status_code == 200
        assert browser.post("/sign-in", data=form, headers={"Origin": service.url}).status_code == 403


def test_what_the_proxy_answers_itself_is_a_problem_that_is_kept_by_nobody(proxy: str) -> None:
    problem(httpx.get(f"{proxy}/metrics"), 404, "not-found")
    problem(httpx.post(f"{proxy}/v1/convert", content=b" " * (2 << 20)), 413, "body-too-large")
    problem(httpx.get(f"{proxy}/v1/me", headers={"Cookie": "x" * 40_000}), 400, "malformed-body")


def test_a_service_that_is_away_is_a_503_that_is_kept_by_nobody(tmp_path: Path) -> None:
    process, url = started(tmp_path, f"127.0.0.1:{free_port()}")
    try:
        reply = httpx.get(f"{url}/v1/me")
        assert problem(reply, 503, "store-unavailable")["retryable"]
        assert reply.headers["retry-after"] == "1"
    finally:
        process.terminate()
        process.wait(WAIT_S)


def test_who_tries_keys_is_slowed_down_and_nothing_else_is(service: Live, proxy: str) -> None:
    form, headers = {"key": "po_guess"}, {"Origin": proxy}
    with httpx.Client(base_url=proxy) as browser:
        replies = [browser.post("/sign-in", data=form, headers=headers) for _ in range(40)]
        assert {reply.status_code for reply in replies} == {401, 429}
        slowed = next(reply for reply in replies if reply.status_code == 429)
        assert problem(slowed, 429, "too-many-requests")["retryable"]
        assert slowed.headers["retry-after"] == "1"
        key = {"Authorization": f"Bearer {service.admin}"}
        asked = [browser.get("/v1/me", headers=key) for _ in range(100)]
        assert {reply.status_code for reply in asked} == {200}


def test_it_has_bounds_on_time_and_number() -> None:
    """One each; the limits of requests are by address."""
    text = re.sub(r"#.*", "", CONFIG.read_text("utf-8"))
    for name in ("client_header_timeout", "client_body_timeout", "send_timeout", "limit_conn connections"):
        assert len(re.findall(rf"^\s*{name} \w+;", text, re.MULTILINE)) == 1, name
    assert text.count("limit_req_zone $") == 2

"""`odometer serve` on Redis: which server it refuses, and what its readiness says when one dies."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis_server
from serving import live

from privacy_odometer.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command to its end."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ODOMETER_")}
    return subprocess.run(
        [sys.executable, "-m", "privacy_odometer", "serve", "--port", "0", *arguments],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_redis_that_may_forget_is_not_served(tmp_path: Path) -> None:
    """Exit 78, with the lines for redis.conf."""
    with redis_server.server(tmp_path, extra_config=["appendfsync everysec"]) as redis:
        result = serve("--store", redis.url)
    assert result.returncode == 78
    assert f"127.0.0.1:{redis.port} may lose" in result.stderr
    assert "\n  appendfsync always\n" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_password_is_not_said_when_the_store_cannot_be_opened() -> None:
    result = serve("--store", "redis://:swordfish@127.0.0.1:1")
    assert result.returncode == 3
    assert "127.0.0.1:1" in result.stderr
    assert "swordfish" not in result.stderr + result.stdout


def test_a_redis_that_may_forget_is_served_if_that_is_asked_for(tmp_path: Path) -> None:
    with (
        redis_server.server(tmp_path, extra_config=["appendfsync everysec"]) as redis,
        live(redis.url, allow_volatile_store=True) as service,
    ):
        assert service.ask("GET", "/readyz").status_code == 200


def test_the_environment_may_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODOMETER_ALLOW_VOLATILE_STORE", "true")
    assert Settings().allow_volatile_store


def test_readiness_follows_the_redis(tmp_path: Path) -> None:
    """Down while it is away or weaker than it was, up again by itself; what was charged is still there."""
    with redis_server.server(tmp_path) as redis, live(redis.url) as service:
        service.open("adult")
        assert service.charge("adult", "one").status_code == 201
        redis.kill()
        assert service.ask("GET", "/readyz").status_code == 503
        assert service.charge("adult", "two").status_code == 503
        safe = redis.file.read_text()
        redis.file.write_text(safe.replace("appendfsync always", "appendfsync no"))
        redis.start()
        reply = service.ask("GET", "/readyz")
        assert (reply.status_code, "appendfsync is no" in reply.json()["detail"]) == (503, True)
        assert service.charge("adult", "two").status_code == 503
        redis.kill()
        redis.file.write_text(safe)
        redis.start()
        assert service.ask("GET", "/readyz").status_code == 200
        assert service.charge("adult", "two").status_code == 201
        replayed = service.charge("adult", "one")
        assert (replayed.status_code, replayed.json()["replayed"]) == (200, True)

"""docker-compose.yml and deploy/: Redis keeps what it acknowledged, nobody is let in by mistake."""

import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import redis_server
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from redis.exceptions import RedisError

from odometer_accountant.bounds import BODY_MAX
from odometer_accountant.errors import (
    BodyTooLarge,
    MalformedBody,
    NotFound,
    StoreUnavailable,
    TooManyRequests,
)
from odometer_accountant.stores import open_store
from privacy_odometer.cli.serve import KEEP_ALIVE_S
from privacy_odometer.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NGINX = re.sub(r"#.*", "", (DEPLOY / "nginx.conf").read_text("utf-8"))
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONCE = {name for name, one in SERVICES.items() if one["restart"] == "no"}
IMAGE = re.compile(r"\$\{[A-Z]+_IMAGE:-([a-z]+):([\w.-]+)\}")
REDIS = {name for name, one in SERVICES.items() if one["image"].startswith("${REDIS_IMAGE:-redis:")} - ONCE
OURS = {name for name, one in SERVICES.items() if "build" in one}

every = pytest.mark.parametrize("name", sorted(SERVICES))


def redis_settings() -> dict[str, str]:
    lines = (DEPLOY / "redis.conf").read_text("utf-8").splitlines()
    pairs = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {name: value for name, value in pairs if name != "rename-command"}


def test_redis_keeps_what_it_has_acknowledged() -> None:
    settings = redis_settings()
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["no-appendfsync-on-rewrite"] == "no"
    assert settings["maxmemory-policy"] == "noeviction"


def test_the_service_serves_on_a_redis_with_those_settings(tmp_path: Path) -> None:
    """A real server reads the file, but for its place; the store accepts it, and it cannot be emptied."""
    elsewhere = ("dir ", "port ", "bind ", "include ")
    lines = (DEPLOY / "redis.conf").read_text("utf-8").splitlines()
    config = ["bind 127.0.0.1", *(line for line in lines if not line.startswith(elsewhere))]
    port = redis_server.free_port()
    with redis_server.Server(tmp_path / "redis", port, config, password="a-password") as redis:
        open_store(redis.url).close()
        with pytest.raises(RedisError, match="unknown command"):
            redis.ask("FLUSHALL")


def test_every_redis_reads_those_settings_and_none_besides() -> None:
    assert len(REDIS) == 7
    for name in REDIS:
        one = SERVICES[name]
        assert one["entrypoint"] == ["redis-server", "/etc/odometer/redis.conf"]
        assert "./deploy/redis.conf:/etc/odometer/redis.conf:ro" in one["volumes"]
        given = set(one.get("command", [])[::2])
        assert given == ({"--cluster-enabled", "--cluster-node-timeout"} if name != "redis" else set())


def test_every_redis_has_a_password_and_a_volume_of_its_own() -> None:
    assert redis_settings()["include"] == "/run/odometer/redis-auth.conf"
    assert all("secret:/run/odometer:ro" in SERVICES[name]["volumes"] for name in REDIS)
    kept = {mount.split(":")[0] for name in REDIS for mount in SERVICES[name]["volumes"] if ":/data" in mount}
    assert len(kept) == len(REDIS)
    assert kept <= set(COMPOSE["volumes"])


def test_the_password_is_made_once_and_is_the_one_that_redis_asks_for(tmp_path: Path) -> None:
    def make() -> tuple[str, str]:
        subprocess.run(["sh", str(DEPLOY / "make-password.sh"), str(tmp_path)], check=True)
        return (tmp_path / "redis-password").read_text(), (tmp_path / "redis-auth.conf").read_text()

    password, lines = make()
    assert re.fullmatch("[0-9a-f]{64}", password)
    assert lines == f"requirepass {password}\nmasterauth {password}\n"
    assert make() == (password, lines)


def test_only_the_way_in_is_published_and_only_to_this_machine() -> None:
    published = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    assert published == {name: ["127.0.0.1:8790:8790"] for name in ("proxy", "single", "cluster")}


@every
def test_every_service_that_stays_says_whether_it_is_well(name: str) -> None:
    """In the compose file, or in the image that is built here."""
    ours = "HEALTHCHECK" in (DEPLOY / "Dockerfile").read_text("utf-8")
    assert name in ONCE or "test" in SERVICES[name].get("healthcheck", {}) or (name in OURS and ours)


@every
def test_every_container_is_confined(name: str) -> None:
    one = SERVICES[name]
    assert one["read_only"]
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]


def bytes_of(limit: str) -> int:
    """A size in compose's own writing, with its default where it can be set."""
    size = re.sub(r"^\$\{\w+:-(\w+)\}$", r"\1", limit)
    return int(size[:-1]) * {"m": 2**20, "g": 2**30}[size[-1]]


@every
def test_every_container_has_bounds(name: str) -> None:
    """On memory (without swap), on processes, on open files, on what it writes to memory."""
    one = SERVICES[name]
    memory = bytes_of(one["mem_limit"])
    assert one["memswap_limit"] == one["mem_limit"]
    assert memory >= (2**31 if name in OURS | REDIS else 2**28)
    assert 16 <= one["pids_limit"] <= 256
    assert one["ulimits"]["nofile"] > Settings.model_fields["connections_max"].default
    mounts = one["tmpfs"]
    assert all(mount.endswith(":size=64m") for mount in mounts)
    assert 2**26 * len(mounts) < memory


@every
def test_every_image_can_be_named_by_digest(name: str) -> None:
    """Ours by what it is built on."""
    one = SERVICES[name]
    if name in OURS:
        assert one["build"]["args"] == {"PYTHON_IMAGE": "${PYTHON_IMAGE:-python:3.11-slim}"}
    else:
        assert IMAGE.fullmatch(one["image"])


@every
def test_nobody_is_root_who_stays(name: str) -> None:
    """The one that is root makes the password, on no network, and ends."""
    user = SERVICES[name].get("user", "image" if name in OURS else "root")
    assert user != "root" or (name in ONCE and SERVICES[name]["network_mode"] == "none")


# The image

DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")


def pins(name: str) -> dict[str, list[str]]:
    """Version by package of a file of requirements, and how many checksums."""
    found = re.findall(
        r"^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
        (DEPLOY / name).read_text("utf-8"),
        re.MULTILINE,
    )
    return {canonicalize_name(package): [version, *hashes.split()] for package, version, hashes in found}


def test_the_image_installs_nothing_without_a_checksum() -> None:
    for line in DOCKERFILE.replace("\\\n", " ").splitlines():
        for command in line.split("&&"):
            if re.search(r"pip (install|wheel)", command):
                assert "--require-hashes -r" in command or (
                    "--no-deps" in command and "--no-index" in command
                )


def test_the_checksums_are_of_the_pins_and_of_all_that_the_service_needs() -> None:
    """Walks the requirements of the installed packages, as on the image's machine."""
    there = pins("requirements.txt")
    text = (ROOT / "constraints.txt").read_text("utf-8")
    pinned = {
        canonicalize_name(line.split("==")[0]): line.split("==")[1]
        for line in text.splitlines()
        if "==" in line and not line.startswith("#")
    }
    assert {name: version for name, (version, *_) in there.items()} == {name: pinned[name] for name in there}
    machine = {**default_environment(), "python_version": "3.11", "python_full_version": "3.11.9"}
    needed: set[str] = set()
    left = [("privacy-odometer", "redis"), ("privacy-odometer", ""), ("privacy-odometer-client", "")]
    seen = set(left)
    while left:
        package, extra = left.pop()
        for text in metadata.requires(package) or []:
            one = Requirement(text)
            if one.marker is None or one.marker.evaluate({**machine, "extra": extra}):
                needed.add(canonicalize_name(one.name))
                more = {(one.name, ""), *((one.name, each) for each in one.extras)} - seen
                seen |= more
                left += more
    ours = {"privacy-odometer", "privacy-odometer-client"}
    assert needed - ours == set(there)


def test_the_image_names_its_base_once_so_that_a_digest_can_be_given() -> None:
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11-slim$", DOCKERFILE, re.MULTILINE)
    last = DOCKERFILE.rpartition("FROM ")[2]
    assert re.search(r"^USER [1-9]\d+$", last, re.MULTILINE)


@every
def test_everything_waits_for_what_it_needs(name: str) -> None:
    """Until that is well, or has done its work; and it is there in the same shape."""
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        done = "service_completed_successfully" if needed in ONCE else "service_healthy"
        assert how == {"condition": done}
        assert SERVICES[needed].get("profiles") in (None, SERVICES[name].get("profiles"))


def test_the_plain_start_is_the_shape_with_one_redis() -> None:
    plain = {name for name, one in SERVICES.items() if "profiles" not in one}
    assert plain == {"proxy", "api", "redis", "password"}
    assert SERVICES["api"]["deploy"]["replicas"] > 1


def test_the_cluster_is_made_of_its_six_nodes() -> None:
    networks = {
        name: one["networks"]["cluster"] for name, one in SERVICES.items() if name.startswith("node-")
    }
    assert SERVICES["cluster-init"]["command"] == [f"{one['ipv4_address']}:6379" for one in networks.values()]
    assert set(SERVICES["cluster-init"]["depends_on"]) == set(networks)
    store = " ".join(SERVICES["cluster-api"]["entrypoint"])
    assert all(f"{name}:6379" in store for name in networks)
    assert "replicas=1" in store


# The proxy


def proxy_setting(name: str) -> str:
    found = re.findall(rf"^\s*{name} ([^;]+);", NGINX, re.MULTILINE)
    assert len(found) == 1, name
    return str(found[0])


def seconds(name: str) -> int:
    return int(proxy_setting(name).removesuffix("s"))


def test_the_proxy_waits_longer_than_the_service_does() -> None:
    slow_after_s = Settings.model_fields["slow_after_s"].default
    assert seconds("proxy_read_timeout") > slow_after_s
    assert seconds("proxy_send_timeout") > slow_after_s
    of_upstream = re.search(r"upstream.*?keepalive_timeout (\d+)s", NGINX, re.DOTALL)
    assert of_upstream
    assert int(of_upstream[1]) < KEEP_ALIVE_S


def test_the_proxy_sends_no_charge_twice_and_turns_no_error_into_a_success() -> None:
    assert proxy_setting("proxy_next_upstream") == "error timeout"
    assert "proxy_intercept_errors" not in NGINX
    assert all(int(status) >= 400 for status in re.findall(r"return (\d+)", NGINX))
    assert not re.search(r"error_page[^;]*=\d", NGINX)


def test_the_proxy_takes_every_body_that_the_service_reads() -> None:
    assert int(proxy_setting("client_max_body_size").removesuffix("m")) * 2**20 > BODY_MAX


def test_the_proxy_keeps_the_metrics_to_those_inside() -> None:
    assert re.search(r"location = /metrics \{[^}]*\sreturn 404", NGINX)


def test_the_proxys_own_answers_are_problems_of_the_service() -> None:
    bodies = [yaml.safe_load(body) for body in re.findall(r"return \d+ '(.*)';", NGINX)]
    kinds = [NotFound, StoreUnavailable, BodyTooLarge, TooManyRequests, MalformedBody]
    for body, kind in zip(bodies, kinds, strict=True):
        assert body == kind(body["detail"]).problem()

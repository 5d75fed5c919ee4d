"""Paths: what is not a route is not redirected to one."""

import httpx
import pytest
from serving import live


@pytest.mark.parametrize("path", ["/v1/datasets/", "/v1/me/", "//v1/me", "/healthz/"])
def test_a_path_that_is_almost_a_route_is_not_found(path: str) -> None:
    with live() as running:
        reply = httpx.get(f"{running.url}{path}", headers={"Authorization": f"Bearer {running.admin}"})
    assert reply.status_code == 404
    assert reply.json()["type"] == "/problems/not-found"

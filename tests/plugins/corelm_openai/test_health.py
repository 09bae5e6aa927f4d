"""``/health``, ``/health/ready`` and ``/health/live``."""

import pytest

from corelm.api import EngineDeadError

READY = ("/health", "/health/ready")


async def statuses(http):
    return [(await http.get(path)).status_code for path in (*READY, "/health/live")]


async def test_while_requests_are_served(http):
    assert await statuses(http) == [200, 200, 200]
    assert (await http.get("/health")).json() == {"status": "ready"}


@pytest.mark.parametrize("status", ["starting", "draining"])
async def test_loading_and_draining_are_not_ready_but_alive(http, engine, status):
    engine.status = status
    assert await statuses(http) == [503, 503, 200]
    assert (await http.get("/health/live")).json() == {"status": status}


async def test_once_told_to_stop_it_is_not_ready(http, stop):
    stop.set()
    assert await statuses(http) == [503, 503, 200]


async def test_a_failed_engine_is_dead(http, engine):
    engine.dead = EngineDeadError("the secret cause")
    assert await statuses(http) == [503, 503, 503]
    for path in (*READY, "/health/live"):
        assert "secret" not in (await http.get(path)).text


@pytest.mark.parametrize("path", [*READY, "/health/live"])
async def test_head_says_the_same_in_its_status(http, engine, path):
    response = await http.head(path)
    assert (response.status_code, response.content) == (200, b"")
    engine.dead = EngineDeadError("gone")
    assert (await http.head(path)).status_code == 503

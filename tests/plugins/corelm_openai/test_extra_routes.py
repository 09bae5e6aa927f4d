"""Routes of other plugins, loaded as plugins are and served by a running server."""

import asyncio
from pathlib import Path

import pytest
from distributions import install
from openai_plugins import Serving, make_frontend

from corelm.api import EngineStoppedError, PluginError

EXAMPLE = Path(__file__).parents[3] / "examples/extra_route/corelm_extra_route.py"
HOOK = "from corelm.api import hookimpl\n@hookimpl\ndef corelm_openai_register_routes(register):\n    "
ROUTE = """
def make(context):
    from litestar import get
    @get({path!r})
    async def answer() -> str:
        return "mine"
    return [answer]
"""


async def test_the_example_is_served_and_keeps_to_the_api_keys(site, engine):
    install(site, "extra", EXAMPLE.read_text())
    frontend = make_frontend("extra", routes=["stats"], api_keys=["secret"])
    async with Serving(frontend, engine) as http, http:
        assert (await http.get("/busy")).json() == {"busy": False}
        refused = await http.get("/stats")
        assert refused.status_code == 401
        key = {"authorization": "Bearer secret"}
        answer = await http.get("/stats", headers=key)
        assert answer.json()["total_blocks"] == 1
        assert answer.headers["x-request-id"]
        engine.dead = EngineStoppedError("the engine is loading")
        unready = await http.get("/stats", headers=key)
        assert (unready.status_code, unready.json()["error"]["type"]) == (503, "service_unavailable")


async def test_installing_routes_does_not_serve_them(site, engine):
    install(site, "extra", EXAMPLE.read_text())
    async with Serving(make_frontend("extra"), engine) as http, http:
        assert (await http.get("/busy")).status_code == 404


BROKEN = {
    "factory": (
        "def make(context): raise ValueError('no table')\n" + HOOK + "register('mine', make)",
        r"corelm_openai_register_routes 'mine' of plugin 'extra' \(dist-extra 1.0\) could not be created: .*no table",
    ),
    "nothing": (
        HOOK + "register('mine', lambda context: None)",
        "its factory returned None",
    ),
    "taken": (
        ROUTE.format(path="/v1/models") + HOOK + "register('mine', make)",
        "the routes that openai.routes names cannot be served: .*/v1/models",
    ),
    "unknown": (
        HOOK + "register('mein', lambda context: [])",
        "nothing named 'mine' is registered with corelm_openai_register_routes; did you mean 'mein'",
    ),
    "failed": (
        "raise ImportError('no libfoo')",
        r"nothing named 'mine' .* plugin 'extra' \(dist-extra 1.0\) is not loaded: ImportError: no libfoo",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
async def test_routes_that_cannot_be_served_end_the_start(site, engine, kind):
    code, message = BROKEN[kind]
    install(site, "extra", code)
    frontend = make_frontend("extra", routes=["mine"])
    with pytest.raises(PluginError, match=message):
        await frontend.serve(engine, asyncio.Event())
    assert frontend.url is None

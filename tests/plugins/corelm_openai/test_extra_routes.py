"""Routes of other plugins, loaded as plugins are and served by a running server."""

import asyncio
import sys
from pathlib import Path

import httpx
import pytest
from distributions import install

from corelm.api import EngineStoppedError, FrontendContext, PluginError
from corelm.plugins import PluginHost
from corelm.settings import load_settings

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


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A directory on the path; what is imported from it is forgotten again."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("plugin_dist_")]:
        del sys.modules[name]


def make_frontend(plugin, **settings):
    """The frontend as `corelm run` makes it, and the host."""
    host = PluginHost.load([plugin, "openai"])
    chosen = load_settings(host, overrides={"openai": {"port": 0, **settings}})
    context = FrontendContext(settings=chosen.plugin("openai"))
    return host.create(host.select("frontend", "openai"), context)


class Serving:
    def __init__(self, frontend, engine):
        self.frontend, self.engine, self.stop = frontend, engine, asyncio.Event()

    async def __aenter__(self):
        self.task = asyncio.create_task(self.frontend.serve(self.engine, self.stop))
        while self.frontend.url is None and not self.task.done():  # noqa: ASYNC110 - has no event
            await asyncio.sleep(0.002)
        if self.task.done():
            await self.task
        return httpx.AsyncClient(base_url=self.frontend.url.removesuffix("/v1"))

    async def __aexit__(self, *exc):
        self.stop.set()
        async with asyncio.timeout(10):
            await self.task


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

"""Running the frontend together with other plugins."""

import asyncio

import httpx

from corelm.api import FrontendContext
from corelm.plugins import PluginHost
from corelm.settings import load_settings


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

"""The frontend object that corelm runs."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from litestar.handlers import HTTPRouteHandler

from corelm.api import EngineClient, Frontend
from corelm_openai.app import create_app
from corelm_openai.hookspecs import RouteContext
from corelm_openai.http.server import listen, run, url_of
from corelm_openai.settings import OpenAISettings

logger = logging.getLogger(__name__)


class OpenAIFrontend(Frontend):
    """Serves OpenAI's HTTP API, and the routes of other plugins that `extra_routes` makes."""

    def __init__(
        self,
        settings: OpenAISettings,
        extra_routes: Callable[[RouteContext], Sequence[Sequence[HTTPRouteHandler]]] = lambda _: (),
    ) -> None:
        self._settings = settings
        self._extra_routes = extra_routes

    async def serve(self, engine: EngineClient, stop: asyncio.Event) -> None:
        extra = [route for routes in self._extra_routes(RouteContext(engine=engine, stop=stop)) for route in routes]
        app = create_app(engine, self._settings, stop, extra)
        with await asyncio.to_thread(listen, self._settings.host, self._settings.port) as sock:
            self.url = f"{url_of(sock)}/v1"
            logger.info("listening on %s", self.url)
            await run(app, sock, self._settings, stop)

"""The frontend object that corelm runs."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from litestar.handlers import HTTPRouteHandler

from corelm.api import EngineClient, Frontend
from corelm_openai.app import create_app
from corelm_openai.chat.model_formats import BUILT_IN_FORMATS, FormatFactories
from corelm_openai.hookspecs import RouteContext
from corelm_openai.http.server import listen, run, url_of
from corelm_openai.http.tls import tls_context
from corelm_openai.settings import OpenAISettings

logger = logging.getLogger(__name__)


class OpenAIFrontend(Frontend):
    """Serves OpenAI's HTTP API, and the routes of other plugins that `extra_routes` makes; with `formats`."""

    def __init__(
        self,
        settings: OpenAISettings,
        extra_routes: Callable[[RouteContext], Sequence[Sequence[HTTPRouteHandler]]] = lambda _: (),
        formats: FormatFactories = BUILT_IN_FORMATS,
    ) -> None:
        self._settings = settings
        self._extra_routes = extra_routes
        self._formats = formats

    async def serve(self, engine: EngineClient, stop: asyncio.Event) -> None:
        extra = [route for routes in self._extra_routes(RouteContext(engine=engine, stop=stop)) for route in routes]
        app = create_app(engine, self._settings, stop, extra, self._formats)
        tls = tls_context(self._settings)
        with await asyncio.to_thread(listen, self._settings.host, self._settings.port) as sock:
            self.url = f"{url_of(sock, 'https' if tls else 'http')}{self._settings.root_path}/v1"
            logger.info("listening on %s", self.url)
            await run(app, sock, self._settings, stop, tls)

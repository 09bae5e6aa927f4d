"""The frontend object that corelm runs."""

import asyncio
import logging

from corelm.api import EngineClient, Frontend
from corelm_openai.app import create_app
from corelm_openai.server import listen, run, url_of
from corelm_openai.settings import OpenAISettings

logger = logging.getLogger(__name__)


class OpenAIFrontend(Frontend):
    """Serves OpenAI's HTTP API."""

    def __init__(self, settings: OpenAISettings) -> None:
        self._settings = settings

    async def serve(self, engine: EngineClient, stop: asyncio.Event) -> None:
        with await asyncio.to_thread(listen, self._settings.host, self._settings.port) as sock:
            self.url = f"{url_of(sock)}/v1"
            logger.info("listening on %s", self.url)
            await run(create_app(engine, self._settings, stop), sock, self._settings, stop)

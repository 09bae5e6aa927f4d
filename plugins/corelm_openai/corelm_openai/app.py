"""The Litestar application."""

import asyncio

from litestar import Litestar
from litestar.config.cors import CORSConfig

from corelm.api import EngineClient
from corelm_openai.auth import BearerAuth
from corelm_openai.errors import error_response
from corelm_openai.request_ids import add_request_id
from corelm_openai.routes import make_routes
from corelm_openai.settings import OpenAISettings


def create_app(engine: EngineClient, settings: OpenAISettings, stop: asyncio.Event) -> Litestar:
    """The HTTP API of `engine`. New work is refused once `stop` is set."""
    keys = [key.get_secret_value() for key in settings.api_keys]
    origins = settings.cors_origins
    return Litestar(
        make_routes(engine, settings, stop),
        middleware=[BearerAuth(keys)] if keys else [],
        cors_config=CORSConfig(allow_origins=origins, expose_headers=["x-request-id"]) if origins else None,
        before_send=[add_request_id],
        exception_handlers={Exception: error_response},
        request_max_body_size=int(settings.max_body_mb * 2**20),
        openapi_config=None,
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )

"""The Litestar application."""

import asyncio
from collections.abc import Sequence

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.exceptions import ImproperlyConfiguredException
from litestar.handlers import HTTPRouteHandler

from corelm.api import EngineClient, PluginError
from corelm_openai.http.auth import BearerAuth
from corelm_openai.http.errors import error_response
from corelm_openai.http.request_ids import add_request_id
from corelm_openai.routes import make_routes
from corelm_openai.service import Service
from corelm_openai.settings import OpenAISettings


def create_app(
    engine: EngineClient, settings: OpenAISettings, stop: asyncio.Event, extra: Sequence[HTTPRouteHandler] = ()
) -> Litestar:
    """The HTTP API of `engine`. New work is refused once `stop` is set.

    Raises `PluginError` if the routes of other plugins, `extra`, cannot be added.
    """
    try:
        return _create_app([*make_routes(Service(engine, settings, stop)), *extra], settings)
    except ImproperlyConfiguredException as error:
        raise PluginError(f"the routes that openai.routes names cannot be served: {error.detail}") from error


def _create_app(routes: list[HTTPRouteHandler], settings: OpenAISettings) -> Litestar:
    keys = [key.get_secret_value() for key in settings.api_keys]
    origins = settings.cors_origins
    return Litestar(
        routes,
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

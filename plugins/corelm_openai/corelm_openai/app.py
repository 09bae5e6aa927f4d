"""The HTTP API as an ASGI application."""

import asyncio
from collections.abc import Sequence

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.exceptions import ImproperlyConfiguredException
from litestar.handlers import HTTPRouteHandler

from corelm.api import EngineClient, PluginError
from corelm_openai.chat.model_formats import BUILT_IN_FORMATS, FormatFactories
from corelm_openai.http.auth import KeyAuth, known_keys
from corelm_openai.http.errors import error_response
from corelm_openai.http.exchanges import Exchanges
from corelm_openai.openapi.routes import openapi_routes
from corelm_openai.routes import make_routes
from corelm_openai.service import Service
from corelm_openai.settings import OpenAISettings
from corelm_openai.telemetry.watchers import watch


def create_app(
    engine: EngineClient,
    settings: OpenAISettings,
    stop: asyncio.Event,
    extra: Sequence[HTTPRouteHandler] = (),
    formats: FormatFactories = BUILT_IN_FORMATS,
) -> Exchanges:
    """The HTTP API of `engine`. New work is refused once `stop` is set.

    Raises `PluginError` if the routes of other plugins, `extra`, cannot be added or `formats` has not what the
    settings name, and other kinds of `StartupError`
    if the settings cannot be followed.
    """
    keys = known_keys(settings)
    watching = watch(engine, settings)
    own = [*make_routes(Service(engine, settings, stop, formats)), *watching.routes]
    routes = [*own, *openapi_routes(own, settings.root_path, asks_for_keys=bool(keys)), *extra]
    try:
        return Exchanges(_create_app(routes, settings, keys), watching.listeners)
    except ImproperlyConfiguredException as error:
        raise PluginError(f"the routes that openai.routes names cannot be served: {error.detail}") from error


def _create_app(routes: list[HTTPRouteHandler], settings: OpenAISettings, keys: list[str]) -> Litestar:
    origins = settings.cors_origins
    return Litestar(
        routes,
        path=settings.root_path,
        middleware=[KeyAuth(keys)] if keys else [],
        cors_config=CORSConfig(allow_origins=origins, expose_headers=["x-request-id"]) if origins else None,
        exception_handlers={Exception: error_response},
        request_max_body_size=int(settings.max_body_mb * 2**20),
        openapi_config=None,
        logging_config=None,
        debug=False,
        pdb_on_exception=False,
    )

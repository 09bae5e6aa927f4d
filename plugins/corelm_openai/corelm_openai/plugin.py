"""The entry point: registers the frontend "openai" and adds a hook for routes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from corelm.api import AddHook, Extensions, Frontend, FrontendContext, Register, hookimpl
from corelm_openai.hookspecs import RouteContext, corelm_openai_register_routes
from corelm_openai.settings import OpenAISettings

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

_routes: "Extensions[RouteContext, Sequence[HTTPRouteHandler]]"
"""Those of the plugins loaded last. Set before anything can be made."""


def make_frontend(context: FrontendContext) -> Frontend:
    """Build the frontend. The web framework is imported here, once it is needed."""
    from corelm_openai.frontend import OpenAIFrontend

    settings = context.settings or OpenAISettings()
    return OpenAIFrontend(settings, lambda context: [_routes.create(name, context) for name in settings.routes])


@hookimpl
def corelm_add_hooks(add: AddHook) -> None:
    global _routes
    _routes = add(corelm_openai_register_routes)


@hookimpl
def corelm_register_frontends(register: Register[FrontendContext, Frontend]) -> None:
    register(
        "openai",
        make_frontend,
        settings=OpenAISettings,
        summary="OpenAI-compatible HTTP API (completions, chat, models)",
    )

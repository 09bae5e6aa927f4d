"""The entry point: registers the frontend "openai" and its formats, and adds hooks for more of these and for routes."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from corelm.api import AddHook, Extensions, Frontend, FrontendContext, Register, RegisterExtension, hookimpl
from corelm_openai.formats import FormatContext, ReasoningFormat, ToolFormat
from corelm_openai.hookspecs import (
    RouteContext,
)
from corelm_openai.hookspecs import (
    corelm_openai_register_reasoning_formats as reasoning_formats_hook,
)
from corelm_openai.hookspecs import (
    corelm_openai_register_routes as routes_hook,
)
from corelm_openai.hookspecs import (
    corelm_openai_register_tool_formats as tool_formats_hook,
)
from corelm_openai.reasoning.formats import REASONING_FORMATS
from corelm_openai.settings import OpenAISettings
from corelm_openai.tools.formats import TOOL_FORMATS

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

Made = TypeVar("Made", ToolFormat, ReasoningFormat)

_routes: "Extensions[RouteContext, Sequence[HTTPRouteHandler]]"
"""Those of the plugins loaded last, like what follows. Set before anything can be made."""
_tool_formats: Extensions[FormatContext, ToolFormat]
_reasoning_formats: Extensions[FormatContext, ReasoningFormat]


def make_frontend(context: FrontendContext) -> Frontend:
    """Build the frontend. The web framework is imported here, once it is needed."""
    from corelm_openai.chat.model_formats import FormatFactories
    from corelm_openai.frontend import OpenAIFrontend

    settings = context.settings or OpenAISettings()
    return OpenAIFrontend(
        settings,
        lambda context: [_routes.create(name, context) for name in settings.routes],
        FormatFactories(_tool_formats.create, _reasoning_formats.create),
    )


@hookimpl
def corelm_add_hooks(add: AddHook) -> None:
    global _routes, _tool_formats, _reasoning_formats
    _routes = add(routes_hook)
    _tool_formats = add(tool_formats_hook)
    _reasoning_formats = add(reasoning_formats_hook)


@hookimpl
def corelm_openai_register_tool_formats(register: RegisterExtension[FormatContext, ToolFormat]) -> None:
    for name, kind in TOOL_FORMATS.items():
        register(name, _maker(kind))


@hookimpl
def corelm_openai_register_reasoning_formats(register: RegisterExtension[FormatContext, ReasoningFormat]) -> None:
    for name, kind in REASONING_FORMATS.items():
        register(name, _maker(kind))


@hookimpl
def corelm_register_frontends(register: Register[FrontendContext, Frontend]) -> None:
    register(
        "openai",
        make_frontend,
        settings=OpenAISettings,
        summary="OpenAI-compatible HTTP API (completions, chat, models)",
    )


def _maker(kind: type[Made]) -> Callable[[FormatContext], Made]:
    return lambda _: kind()

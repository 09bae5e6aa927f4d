"""The hooks that this plugin adds, for other plugins to implement."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corelm.api import EngineClient, RegisterExtension
from corelm_openai.formats import FormatContext, ReasoningFormat, ToolFormat

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

OPEN = "open"
"""The key in a route's ``opt`` that lets clients in without a key. Every other route asks for one, if there are any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RouteContext:
    """What a factory of routes is given."""

    engine: EngineClient
    """Not ready before the model is loaded; requests come from the beginning."""
    stop: asyncio.Event
    """Set when the server shuts down: what runs may end, nothing new is taken."""


def corelm_openai_register_routes(register: "RegisterExtension[RouteContext, Sequence[HTTPRouteHandler]]") -> None:
    """Register routes of Litestar. A name in the setting ``openai.routes`` serves what its factory returns.

    Clients need an API key as for every other route, unless a route has ``opt={OPEN: True}``. Errors of `corelm.api`
    that a handler raises are answered in OpenAI's shape.
    """


def corelm_openai_register_tool_formats(register: RegisterExtension[FormatContext, ToolFormat]) -> None:
    """Register ways in which models write calls of tools. The setting ``openai.tool_format`` names the one to use."""


def corelm_openai_register_reasoning_formats(register: RegisterExtension[FormatContext, ReasoningFormat]) -> None:
    """Register ways in which models write what they think before they answer. The setting ``openai.reasoning_format``
    names the one to use."""

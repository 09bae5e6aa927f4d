"""The requests of ``/v1/messages`` and ``/v1/messages/count_tokens``.

Fields that are not listed here are ignored: they cannot change the text (``service_tier``, ``cache_control``), or are
wishes that need not be granted (``context_management``). ``null`` always means the default.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from corelm.api import InvalidRequestError
from corelm_openai.anthropic.messages import Text, Turn
from corelm_openai.anthropic.tools import Tool, ToolChoice
from corelm_openai.chat.body import MAX_TOOLS
from corelm_openai.chat.messages import MAX_MESSAGES
from corelm_openai.generation.structured import schema_decoder
from corelm_openai.generation.unsupported import asks

THINKING = ("enabled", "adaptive", "disabled")
EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
"""What chat calls them."""


class Thinking(msgspec.Struct, kw_only=True):
    """Whether to think."""

    type: Annotated[str, Meta(extra_json_schema={"enum": THINKING})]
    display: str | None = None


class OutputFormat(msgspec.Struct, kw_only=True):
    """What the text must look like."""

    type: Annotated[str, Meta(extra_json_schema={"enum": ("json_schema",)})]
    schema: Annotated[Raw, schema_decoder] = Raw()


class OutputConfig(msgspec.Struct, kw_only=True):
    """Wishes for the text."""

    effort: Annotated[str, Meta(extra_json_schema={"enum": tuple(EFFORTS)})] | None = None
    format: OutputFormat | None = None


class Metadata(msgspec.Struct, kw_only=True):
    """Who asks."""

    user_id: str | None = None


class ConversationBody(msgspec.Struct, kw_only=True):
    """What the prompt is made of, and so the request of ``/v1/messages/count_tokens``."""

    model: str
    messages: Annotated[list[Turn], Meta(max_length=MAX_MESSAGES, extra_json_schema={"minItems": 1})]
    system: Text | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    container: Raw = Raw()
    mcp_servers: Raw = Raw()

    def refuse_unsupported(self) -> None:
        """Raise `InvalidRequestError` for a field that is known and not supported, if it asks for something."""
        for name in ("container", "mcp_servers"):
            if asks(getattr(self, name)):
                raise InvalidRequestError(f"{name} is not supported", param=name)


class MessagesBody(ConversationBody, kw_only=True):
    """The request of ``/v1/messages``."""

    max_tokens: Annotated[int, Meta(ge=1)]
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stream: bool | None = None
    metadata: Metadata | None = None

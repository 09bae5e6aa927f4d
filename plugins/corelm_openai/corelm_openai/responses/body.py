"""The request of ``/v1/responses``."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Raw

from corelm.api import InvalidRequestError
from corelm_openai.generation.body import TopCount
from corelm_openai.generation.structured import FormatType, Name
from corelm_openai.generation.unsupported import asks
from corelm_openai.http.decoding import decode_field
from corelm_openai.responses.input import MAX_ITEMS, InputItem
from corelm_openai.tools.wire import FunctionType, WhetherToCall

MAX_TOOLS = 1000
MAX_METADATA = 16
MAX_METADATA_BYTES = 2**17
"""More than so many pairs can have."""
LOGPROBS = "message.output_text.logprobs"
INCLUDABLE = (
    LOGPROBS,
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
)
"""Apart from the first, details of what no reply has."""

_pairs = msgspec.json.Decoder(dict[str, str] | None)
_object = msgspec.json.Decoder(dict[str, Any] | None)

Schema = Annotated[Raw, Meta(extra_json_schema={"type": ["object", "null"]})]
"""A JSON Schema, which is passed on as it is."""
Summary = Literal["auto", "concise", "detailed"]
Identifier = Annotated[str, Meta(max_length=512)]


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    """A function the model may call. Other types of tools are read to be refused."""

    type: FunctionType
    name: str | None = None
    description: str | None = None
    parameters: Schema = Raw(b"null")
    """A JSON Schema of an object. None are taken without it."""
    strict: bool | None = None


class NamedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool by its name."""

    type: FunctionType
    name: str | None = None


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The function that must be called, or those that may or must be."""

    type: Annotated[str, Meta(extra_json_schema={"enum": ("function", "allowed_tools")})]
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: Annotated[list[NamedTool], Meta(max_length=MAX_TOOLS)] | None = None


class TextFormat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the text must look like. The other fields are for ``json_schema``."""

    type: FormatType
    name: Name | None = None
    description: str | None = None
    schema: Schema = Raw(b"null")
    strict: bool | None = None


class TextOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the text must be like."""

    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to think. A reply has the thoughts themselves, and no summary."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None


class StreamOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Options of a streamed reply, which never holds padding."""

    include_obfuscation: bool | None = None


class ResponseBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The request. ``null`` means the default, except for `model` and `input`."""

    unsupported: ClassVar[tuple[str, ...]] = (
        "access_programs",
        "background_options",
        "context_management",
        "conversation",
        "image",
        "moderation",
        "prompt",
    )

    model: str
    input: str | Annotated[list[InputItem], Meta(max_length=MAX_ITEMS, extra_json_schema={"minItems": 1})]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[FunctionTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: WhetherToCall | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: TopCount | None = None
    include: Annotated[list[str], Meta(max_length=len(INCLUDABLE))] | None = None
    metadata: Annotated[Raw, _pairs] = Raw()
    user: Identifier | None = None
    safety_identifier: Identifier | None = None
    truncation: Literal["auto", "disabled"] | None = None
    max_tool_calls: int | None = None
    """Of built-in tools, of which there are none."""
    prompt_cache_key: Identifier | None = None
    prompt_cache_options: Annotated[Raw, _object] = Raw()
    prompt_cache_retention: str | None = None
    service_tier: str | None = None

    access_programs: Raw = Raw()
    background_options: Raw = Raw()
    context_management: Raw = Raw()
    conversation: Raw = Raw()
    image: Raw = Raw()
    moderation: Raw = Raw()
    prompt: Raw = Raw()

    @property
    def stored(self) -> bool:
        """Whether the response is kept."""
        return self.store is not False

    @property
    def shows_logprobs(self) -> bool:
        """Whether the text comes with log-probabilities."""
        return bool(self.top_logprobs) or LOGPROBS in (self.include or ())

    def check(self) -> None:
        """Raise `InvalidRequestError` for fields that do not go together, or ask for what there is not."""
        for name in self.unsupported:
            if asks(getattr(self, name)):
                raise InvalidRequestError(f"{name} is not supported", param=name)
        for index, name in enumerate(self.include or ()):
            if name not in INCLUDABLE:
                raise InvalidRequestError(
                    f"include[{index}] must be one of {', '.join(INCLUDABLE)}", param=f"include[{index}]"
                )
        if self.background and not self.stored:
            raise InvalidRequestError("background is only allowed when store is true", param="background")
        if self.stream_options is not None and not self.stream:
            raise InvalidRequestError("stream_options is only allowed when stream is true", param="stream_options")
        self.read_metadata()

    def read_metadata(self) -> dict[str, str]:
        """The metadata. Raises `InvalidRequestError`."""
        pairs = decode_field(self.metadata, _pairs, "metadata", MAX_METADATA_BYTES) or {}
        if len(pairs) > MAX_METADATA:
            raise InvalidRequestError(f"metadata must have at most {MAX_METADATA} pairs", param="metadata")
        if any(len(key) > 64 or len(value) > 512 for key, value in pairs.items()):
            raise InvalidRequestError(
                "metadata must have keys of at most 64 characters and values of at most 512", param="metadata"
            )
        return pairs

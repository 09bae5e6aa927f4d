"""The formats in which the served model writes calls and thoughts."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from corelm.api import Chat, EngineClient, InvalidRequestError
from corelm_openai.formats import FormatContext, ReasoningFormat, ToolFormat
from corelm_openai.reasoning.formats import REASONING_FORMATS
from corelm_openai.settings import OpenAISettings
from corelm_openai.tools.formats import TOOL_FORMATS

AUTO, NONE = "auto", "none"
_BY_TOKEN = {"<tool_call>": "hermes", "[TOOL_CALLS]": "mistral", "<|python_tag|>": "llama3_json"}
"""Tool formats that models with such a token write."""
_THINK = "<think>"
_PROBE = Chat(
    messages=[{"role": "user", "content": "x"}],
    tools=[{"type": "function", "function": {"name": "x", "description": "x", "parameters": {"type": "object"}}}],
)


class ToolFormats(Protocol):
    """Makes a tool format by its name. Raises `PluginError` if there is none."""

    def __call__(self, name: str, context: FormatContext) -> ToolFormat: ...


class ReasoningFormats(Protocol):
    """Makes a reasoning format by its name. Raises `PluginError` if there is none."""

    def __call__(self, name: str, context: FormatContext) -> ReasoningFormat: ...


class FormatFactories(NamedTuple):
    """What formats there are."""

    tools: ToolFormats
    reasoning: ReasoningFormats


BUILT_IN_FORMATS = FormatFactories(
    lambda name, context: TOOL_FORMATS[name](), lambda name, context: REASONING_FORMATS[name]()
)
"""Those of this plugin alone."""


class ModelFormats:
    """Those that the settings name, or that the model's vocabulary suggests."""

    tools: ToolFormat
    """Known once this is `prepare`d."""
    reasoning: ReasoningFormat | None = None
    """None if the model's thoughts are not told from its answers."""
    tokens: Mapping[str, int]
    """Which markers of the tool format are tokens of the model's."""
    template_knows_tools = True
    """Whether the model's chat template tells it about tools."""

    def __init__(self, engine: EngineClient, settings: OpenAISettings, factories: FormatFactories) -> None:
        """Raises `PluginError` if the settings name a format that there is not."""
        self._engine = engine
        self._factories = factories
        self._context = FormatContext(engine=engine)
        self._suggests_tools = settings.tool_format == AUTO
        if not self._suggests_tools:
            self.tools = factories.tools(settings.tool_format, self._context)
        self._suggests_reasoning = settings.reasoning_format == AUTO
        if settings.reasoning_format not in (AUTO, NONE):
            self.reasoning = factories.reasoning(settings.reasoning_format, self._context)
        self._prepared = False

    async def prepare(self) -> None:
        """Find out about the model, once it is loaded. Raises what `EngineClient.tokenize` does."""
        if self._prepared:
            return
        if self._suggests_tools:
            found = await self._tokens(_BY_TOKEN)
            name = next((name for text, name in _BY_TOKEN.items() if text in found), "hermes")
            self.tools = self._factories.tools(name, self._context)
        if self._suggests_reasoning and _THINK in await self._tokens([_THINK]):
            self.reasoning = self._factories.reasoning("think", self._context)
        self.tokens = await self._tokens(self.tools.markers)
        self.template_knows_tools = await self._template_knows_tools()
        self._prepared = True

    async def _tokens(self, texts: Iterable[str]) -> dict[str, int]:
        """Those of the texts that are tokens, with their ids."""
        found = {}
        for text in texts:
            with suppress(InvalidRequestError):  # as it is longer than the context
                token_ids = await self._engine.tokenize(text, add_special_tokens=False)
                if len(token_ids) == 1:
                    found[text] = token_ids[0]
        return found

    async def _template_knows_tools(self) -> bool:
        try:
            await self._engine.tokenize(_PROBE)
        except InvalidRequestError as error:
            return error.param != "tools"
        return True

"""The formats that are always there."""

from collections.abc import Mapping

from corelm_openai.formats import ToolFormat
from corelm_openai.tools.hermes import Hermes
from corelm_openai.tools.llama3_json import Llama3Json
from corelm_openai.tools.mistral import Mistral
from corelm_openai.tools.pythonic import Pythonic

TOOL_FORMATS: Mapping[str, type[ToolFormat]] = {
    "hermes": Hermes,
    "llama3_json": Llama3Json,
    "mistral": Mistral,
    "pythonic": Pythonic,
}

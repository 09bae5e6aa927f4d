"""The formats that are always there."""

from collections.abc import Mapping

from corelm_openai.formats import ReasoningFormat
from corelm_openai.reasoning.think import Think

REASONING_FORMATS: Mapping[str, type[ReasoningFormat]] = {"think": Think}

"""How models write calls of tools and what they think: what plugins that know another way implement."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol
from uuid import uuid4

from corelm.api import EngineClient


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatContext:
    """What a factory of formats is given."""

    engine: EngineClient
    """Not ready before the model is loaded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFunction:
    """A tool the model may call."""

    name: str
    """Letters, digits, ``_``, ``-`` and ``.`` only."""
    description: str
    parameters: Mapping[str, Any]
    """A JSON Schema of an object."""


class Call(NamedTuple):
    """A call begins."""

    name: str


class Arguments(NamedTuple):
    """The next piece of the arguments, as JSON, of the call that began last. All of them together are an object."""

    text: str


Piece = str | Call | Arguments
"""Something that an output says: a string is text for the user."""


class ToolParser(Protocol):
    """Reads one output."""

    def push(self, text: str, *, last: bool = False) -> Sequence[Piece]:
        """What `text`, the next piece of the output, adds. With the `last` piece comes all that was held back.

        However the output is cut into pieces, the same calls and the same text come of it. What only looks like a
        call is text; nothing is lost, but for white space around calls. Never raises.
        """


class ToolFormat(ABC):
    """A way in which models write calls."""

    markers: Sequence[str] = ()
    """Texts that mark calls. `rules` is told which of them are tokens of the model's."""
    special_tokens: bool = False
    """Whether some of them can be special tokens, which then must not be left out of the text."""

    @abstractmethod
    def parser(self, names: Set[str]) -> ToolParser:
        """Reads an output that may call the tools with these names. A call of any other is text."""

    @abstractmethod
    def rules(self, functions: Sequence[ToolFunction], tokens: Mapping[str, int], *, parallel: bool) -> str:
        """Rules of a grammar in llguidance's dialect of Lark, for outputs that call these functions and nothing else.

        One rule, ``calls``, is such an output; the names of all others begin with ``call``. It makes one call, or any
        number if `parallel`. `tokens` has the ids of those `markers` that are tokens: the grammar says ``<[id]>`` for
        a special one, as its text alone would not do.
        """

    def instructions(self, functions: Sequence[ToolFunction]) -> str | None:
        """What to tell a model whose chat template knows no tools, so that it writes calls like this. None if that is
        not how the format is used."""
        return None

    def as_text(self, name: str, arguments: Mapping[str, Any]) -> str:
        """A call as the model would have written it, for chat templates that know none."""
        return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)

    def new_id(self) -> str:
        """An id for a call."""
        return f"call_{uuid4().hex[:24]}"


class Thoughts(NamedTuple):
    """What a piece of an output adds."""

    reasoning: str
    answer: str


class ReasoningParser(Protocol):
    """Reads one output."""

    def push(self, text: str, *, last: bool = False) -> Thoughts:
        """What `text`, the next piece of the output, adds. With the `last` piece comes all that was held back.

        However the output is cut into pieces, the same comes of it. Never raises.
        """


class ReasoningFormat(ABC):
    """A way in which models write what they think before they answer."""

    special_tokens: bool = False
    """Whether its marks can be special tokens, which then must not be left out of the text."""

    @abstractmethod
    def parser(self, prompt_end: str) -> ReasoningParser:
        """Reads an output. `prompt_end` is how the prompt ended, special tokens included: the chat template may have
        begun the thoughts already."""

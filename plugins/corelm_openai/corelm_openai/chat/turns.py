"""From the text of an assistant's turn to what it consists of, piece by piece."""

from collections.abc import Callable, Iterable, Set
from typing import NamedTuple

import msgspec

from corelm_openai.formats import Arguments, Call, ReasoningFormat, ReasoningParser, Thoughts, ToolFormat, ToolParser


class CallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What is new of one tool call."""

    index: int
    """Which of the turn's calls, from 0."""
    id: str | None = None
    """In the first piece of a call."""
    name: str | None = None
    """In the first piece of a call, whole."""
    arguments: str
    """A piece of the JSON text of its arguments; empty in the first piece of a call."""


class TurnDelta(NamedTuple):
    """What is new of a turn."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallDelta, ...] = ()


class CallReader:
    """Reads the calls of one choice."""

    def __init__(self, parser: ToolParser, new_id: Callable[[], str], *, parallel: bool) -> None:
        self._parser = parser
        self._new_id = new_id
        self._parallel = parallel
        self._calls = 0

    def push(self, text: str, *, last: bool) -> TurnDelta:
        """What `text` adds. Calls after the first one are left out, unless they are `parallel`."""
        content: list[str] = []
        calls: list[CallDelta] = []
        for piece in self._parser.push(text, last=last):
            if isinstance(piece, str):
                content.append(piece)
                continue
            self._calls += isinstance(piece, Call)
            if self._calls == 1 or self._parallel:
                calls.append(self._delta(piece))
        return TurnDelta(content="".join(content), calls=tuple(_joined(calls)))

    def _delta(self, piece: Call | Arguments) -> CallDelta:
        index = self._calls - 1
        if isinstance(piece, Call):
            return CallDelta(index=index, id=self._new_id(), name=piece.name, arguments="")
        return CallDelta(index=index, arguments=piece.text)


def _joined(calls: Iterable[CallDelta]) -> Iterable[CallDelta]:
    """The same with one piece for all arguments of a call that come together."""
    pending: CallDelta | None = None
    for call in calls:
        if pending is not None and call.index == pending.index and pending.id is None:
            pending = CallDelta(index=call.index, arguments=pending.arguments + call.arguments)
            continue
        if pending is not None:
            yield pending
        pending = call
    if pending is not None:
        yield pending


class TurnReader:
    """Reads the text of one choice: what the model thinks, then what it says and calls."""

    def __init__(self, reasoning: ReasoningParser | None, calls: CallReader | None, *, shows_reasoning: bool) -> None:
        self.called = False
        """Whether the turn has a tool call so far."""
        self._reasoning = reasoning
        self._calls = calls
        self._shows_reasoning = shows_reasoning

    def push(self, text: str, *, last: bool = False) -> TurnDelta:
        """What `text`, the next piece, adds. With the `last` piece comes all that was held back."""
        thoughts = Thoughts("", text) if self._reasoning is None else self._reasoning.push(text, last=last)
        if self._calls is None:
            turn = TurnDelta(content=thoughts.answer)
        else:
            turn = self._calls.push(thoughts.answer, last=last)
            self.called = self.called or bool(turn.calls)
        return turn._replace(reasoning=thoughts.reasoning) if self._shows_reasoning else turn


class Turns:
    """Makes the readers of one job."""

    def __init__(
        self,
        *,
        reasoning: ReasoningFormat | None,
        shows_reasoning: bool,
        tools: ToolFormat | None,
        names: Set[str] = frozenset(),
        parallel: bool = True,
    ) -> None:
        """`tools` is None if nothing may be called; `names` are the functions that may be."""
        self.prompt_end = ""
        """How the prompt ended. To be set first, if it has a meaning for the reasoning."""
        self._reasoning = reasoning
        self._shows_reasoning = shows_reasoning
        self._tools = tools
        self._names = names
        self._parallel = parallel

    def new(self) -> TurnReader:
        """A reader for a choice."""
        reasoning = None if self._reasoning is None else self._reasoning.parser(self.prompt_end)
        calls = None
        if self._tools is not None:
            calls = CallReader(self._tools.parser(self._names), self._tools.new_id, parallel=self._parallel)
        return TurnReader(reasoning, calls, shows_reasoning=self._shows_reasoning)

"""From the text of an assistant's turn to what it consists of, piece by piece."""

from typing import NamedTuple

import msgspec


class CallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What is new of one tool call."""

    index: int
    """Which of the turn's calls, from 0."""
    id: str | None = None
    """In the first piece of a call."""
    name: str | None = None
    """In the first piece of a call, whole."""
    arguments: str
    """A piece of the JSON text of its arguments."""


class TurnDelta(NamedTuple):
    """What is new of a turn."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[CallDelta, ...] = ()


class TurnReader:
    """Reads the text of one choice."""

    def __init__(self) -> None:
        self.called = False
        """Whether the turn has a tool call so far."""

    def push(self, text: str, *, last: bool = False) -> TurnDelta:
        """What `text`, the next piece, adds. With the `last` piece comes all that was held back."""
        return TurnDelta(content=text)

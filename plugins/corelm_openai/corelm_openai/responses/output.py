"""From what a model says to output items, piece by piece, and the events that tell of them."""

import msgspec

from corelm_openai.chat.turns import CallDelta, TurnDelta
from corelm_openai.generation.logprobs import ContentLogprob
from corelm_openai.responses.events import EventWriter
from corelm_openai.responses.items import ItemStatus, OutputItem
from corelm_openai.responses.open_items import OpenCall, OpenItem, OpenMessage, OpenReasoning


class OutputWriter:
    """The output of one response."""

    def __init__(self, events: EventWriter) -> None:
        self.items: list[OutputItem] = []
        """Those that are whole."""
        self._events = events
        self._open: OpenItem | None = None
        self._call_index = -1
        """The call that is open, or was last."""
        self._logprobs: list[bytes] = []
        """Of tokens whose text has not come yet, as JSON without brackets."""
        self._thoughts = 0
        self._characters = 0

    @property
    def thinking_share(self) -> float:
        """The part of all characters that the model thought and did not say."""
        return self._thoughts / max(self._characters, 1)

    def push(self, turn: TurnDelta, logprobs: list[ContentLogprob]) -> list[bytes]:
        """The events for what is new. Log-probabilities go with the next text."""
        if logprobs:
            self._logprobs.append(msgspec.json.encode(logprobs)[1:-1])
        self._count(turn)
        told: list[bytes] = []
        if turn.reasoning:
            told += self._into(OpenReasoning)
            told += self._add(turn.reasoning)
        going_on = [call for call in turn.calls if call.index == self._call_index]
        for call in going_on:
            told += self._add(call.arguments)
        if turn.content or (self._logprobs and isinstance(self._open, OpenMessage)):
            told += self._into(OpenMessage)
            told += self._add(turn.content)
        for call in turn.calls[len(going_on) :]:
            told += self._add_call(call)
        return told

    def close(self, status: ItemStatus) -> list[bytes]:
        """The events for the end of the output, which has at least one item. `status` is that of the last."""
        told = self._into(OpenMessage) if not self.items and self._open is None else []
        return told + self._close(status)

    def _count(self, turn: TurnDelta) -> None:
        self._thoughts += len(turn.reasoning)
        self._characters += len(turn.reasoning) + len(turn.content) + sum(len(call.arguments) for call in turn.calls)

    def _into(self, kind: type[OpenReasoning | OpenMessage]) -> list[bytes]:
        """Make sure that an item of a kind is open."""
        if isinstance(self._open, kind):
            return []
        told = self._close("completed")
        self._open = kind(self._events, len(self.items))
        return told + self._open.begin()

    def _add_call(self, call: CallDelta) -> list[bytes]:
        told: list[bytes] = []
        if call.index != self._call_index:
            told = self._close("completed")
            self._call_index = call.index
            self._open = OpenCall(self._events, len(self.items), call)
            told += self._open.begin()
        return told + self._add(call.arguments)

    def _add(self, text: str) -> list[bytes]:
        assert self._open is not None
        logprobs: list[bytes] = []
        if isinstance(self._open, OpenMessage):
            logprobs, self._logprobs = self._logprobs, []
        return self._open.add(text, logprobs) if text or logprobs else []

    def _close(self, status: ItemStatus) -> list[bytes]:
        if self._open is None:
            return []
        item, told = self._open.end(status)
        self.items.append(item)
        self._open = None
        return told

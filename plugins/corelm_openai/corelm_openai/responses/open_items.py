"""Output items that grow, and the events that tell of them."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from msgspec import Raw

from corelm_openai.chat.turns import CallDelta
from corelm_openai.responses.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Event,
    EventWriter,
    ItemAdded,
    ItemDone,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
    TextDone,
)
from corelm_openai.responses.items import (
    FunctionCall,
    ItemStatus,
    Message,
    OutputItem,
    OutputText,
    Reasoning,
    ReasoningText,
    new_id,
)


def _listed(logprobs: list[bytes]) -> Raw:
    return Raw(b"[%b]" % b",".join(logprobs))


class OpenItem(ABC):
    """An item that grows."""

    kind: ClassVar[type[OutputItem]]

    def __init__(self, events: EventWriter, index: int) -> None:
        self.id = new_id(self.kind)
        self._events = events
        self._index = index
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @abstractmethod
    def begin(self) -> list[bytes]:
        """The events of its beginning."""

    @abstractmethod
    def add(self, text: str, logprobs: list[bytes]) -> list[bytes]:
        """The events for more of it. `logprobs` are JSON without brackets."""

    @abstractmethod
    def end(self, status: ItemStatus) -> tuple[OutputItem, list[bytes]]:
        """All of it, and the events of its end."""

    def _piece(self, kind: type[Event], **fields: Any) -> bytes:
        return self._events.event(kind, item_id=self.id, output_index=self._index, **fields)

    def _item(self, kind: type[Event], item: OutputItem) -> bytes:
        return self._events.event(kind, output_index=self._index, item=item)


class OpenMessage(OpenItem):
    """What the model says."""

    kind = Message

    def __init__(self, events: EventWriter, index: int) -> None:
        super().__init__(events, index)
        self._logprobs: list[bytes] = []

    @property
    def part(self) -> OutputText:
        """Its only content, as it is now."""
        return OutputText(text=self.text, logprobs=_listed(self._logprobs))

    def begin(self) -> list[bytes]:
        empty = Message(id=self.id, status="in_progress", role="assistant", content=[])
        return [self._item(ItemAdded, empty), self._piece(PartAdded, part=self.part)]

    def add(self, text: str, logprobs: list[bytes]) -> list[bytes]:
        self._pieces.append(text)
        self._logprobs += logprobs
        return [self._piece(TextDelta, delta=text, logprobs=_listed(logprobs))]

    def end(self, status: ItemStatus) -> tuple[OutputItem, list[bytes]]:
        part = self.part
        item = Message(id=self.id, status=status, role="assistant", content=[part])
        return item, [
            self._piece(TextDone, text=part.text, logprobs=part.logprobs),
            self._piece(PartDone, part=part),
            self._item(ItemDone, item),
        ]


class OpenReasoning(OpenItem):
    """What it thinks."""

    kind = Reasoning

    def begin(self) -> list[bytes]:
        empty = Reasoning(id=self.id, status="in_progress", content=[])
        return [self._item(ItemAdded, empty), self._piece(PartAdded, part=ReasoningText(text=""))]

    def add(self, text: str, logprobs: list[bytes]) -> list[bytes]:
        self._pieces.append(text)
        return [self._piece(ReasoningDelta, delta=text)]

    def end(self, status: ItemStatus) -> tuple[OutputItem, list[bytes]]:
        part = ReasoningText(text=self.text)
        item = Reasoning(id=self.id, status=status, content=[part])
        return item, [
            self._piece(ReasoningDone, text=part.text),
            self._piece(PartDone, part=part),
            self._item(ItemDone, item),
        ]


class OpenCall(OpenItem):
    """A function that it calls."""

    kind = FunctionCall

    def __init__(self, events: EventWriter, index: int, call: CallDelta) -> None:
        super().__init__(events, index)
        self._call = call

    def item(self, status: ItemStatus) -> FunctionCall:
        """The call as it is now."""
        call = self._call
        return FunctionCall(id=self.id, status=status, call_id=call.id or "", name=call.name or "", arguments=self.text)

    def begin(self) -> list[bytes]:
        return [self._item(ItemAdded, self.item("in_progress"))]

    def add(self, text: str, logprobs: list[bytes]) -> list[bytes]:
        self._pieces.append(text)
        return [self._piece(ArgumentsDelta, delta=text)]

    def end(self, status: ItemStatus) -> tuple[OutputItem, list[bytes]]:
        item = self.item(status)
        return item, [
            self._piece(ArgumentsDone, name=item.name, arguments=item.arguments),
            self._item(ItemDone, item),
        ]

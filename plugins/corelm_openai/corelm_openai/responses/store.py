"""Responses that can be asked for later, and gone on from."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from corelm.api import InvalidRequestError
from corelm_openai.http.errors import RESPONSE_NOT_FOUND, shortened
from corelm_openai.responses.background import BackgroundRun
from corelm_openai.responses.items import FunctionCall, Item, Message, OutputItem, OutputText
from corelm_openai.responses.shape import ResponseObject
from corelm_openai.settings import OpenAISettings

_item = msgspec.json.Decoder(Item)


class Stored:
    """A response, and the conversation of which it is the end."""

    def __init__(self, owner: str | None, inputs: Iterable[Item], run: BackgroundRun | None = None) -> None:
        self.owner = owner
        """The identity of the API key that may see it."""
        self.run = run
        """What makes it, or made it, if that is in the background."""
        self.id = ""
        self.body = b""
        """The response as JSON."""
        self.items = {item.id: msgspec.json.encode(item) for item in inputs}
        """By id, as JSON: what came before, the input, and then the output."""
        self.num_inputs = len(self.items)
        self.size = 0
        """In bytes."""
        self.used_at = 0.0

    def fill(self, response: ResponseObject, body: bytes) -> None:
        """Keep the response as it is now."""
        self.id = response.id
        self.body = body
        for item in filter(_is_whole, response.output):
            self.items[item.id] = msgspec.json.encode(_without_logprobs(item))
        self.size = len(body) + sum(map(len, self.items.values())) + (self.run.size if self.run else 0)

    def conversation(self) -> list[Item]:
        """Every item."""
        return list(map(_item.decode, self.items.values()))


class ResponseStore:
    """Responses by id. Those that nobody used for longest go first: when there are too many, or when they are old.

    One that is still being made is ended when it goes.
    """

    def __init__(self, settings: OpenAISettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = settings.responses_max
        self._most_bytes = int(settings.responses_max_mb * 2**20)
        self._ttl_s = settings.responses_ttl_s
        self._clock = clock
        self._stored: OrderedDict[str, Stored] = OrderedDict()
        """The least recently used first."""
        self._size = 0

    def put(self, stored: Stored, response: ResponseObject, body: bytes) -> None:
        """Keep a response as it is now, unless it has more bytes than all may have together."""
        self._size -= stored.size
        stored.fill(response, body)
        self._stored[stored.id] = stored
        self._size += stored.size
        if stored.size > self._most_bytes:
            self.remove(stored)
            return
        self._use(stored)
        self._trim()

    def holds(self, stored: Stored) -> bool:
        """Whether it is still kept."""
        return stored.id in self._stored

    def find(self, response_id: str, owner: str | None) -> Stored:
        """A response. Raises `InvalidRequestError` if there is none that `owner` may see."""
        self._trim()
        stored = self._stored.get(response_id)
        if stored is None or stored.owner != owner:
            raise InvalidRequestError(
                f"There is no response {shortened(response_id)}: it was not stored, or is not any more",
                code=RESPONSE_NOT_FOUND,
            )
        self._use(stored)
        return stored

    def remove(self, stored: Stored) -> None:
        """Forget a response, and end what still makes it."""
        del self._stored[stored.id]
        self._size -= stored.size
        if stored.run is not None:
            stored.run.cancel()

    def item(self, item_id: str, owner: str | None) -> Item | None:
        """An item of any response that `owner` may see."""
        self._trim()
        for stored in reversed(self._stored.values()):
            if stored.owner == owner and item_id in stored.items:
                return _item.decode(stored.items[item_id])
        return None

    def _use(self, stored: Stored) -> None:
        stored.used_at = self._clock()
        self._stored.move_to_end(stored.id)

    def _trim(self) -> None:
        oldest = self._clock() - self._ttl_s
        while self._stored:
            stored = next(iter(self._stored.values()))
            if len(self._stored) <= self._most and self._size <= self._most_bytes and stored.used_at >= oldest:
                break
            self.remove(stored)


def _is_whole(item: OutputItem) -> bool:
    """Whether a conversation can go on with it: not with a call of which the end is missing."""
    return not isinstance(item, FunctionCall) or item.status == "completed"


def _without_logprobs(item: OutputItem) -> OutputItem:
    if not isinstance(item, Message):
        return item
    parts = [OutputText(text=part.text) for part in item.content if isinstance(part, OutputText)]
    return msgspec.structs.replace(item, content=parts)

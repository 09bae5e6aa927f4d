"""Every HTTP request from its beginning to its end."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from litestar.datastructures import MutableScopeHeaders
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from corelm.api import SamplingParams
from corelm_openai.http.request_ids import request_id

logger = logging.getLogger(__name__)

QUIET = "quiet"
"""The key in a route's ``opt`` for routes that machines ask all the time: good news from them is not worth a line."""
CLIENT_LEFT = 499
"""The status of a request whose client left before an answer began."""
_KEY = "corelm_exchange"


class Work(NamedTuple):
    """What a request asked of the engine."""

    reply_id: str
    """The ``id`` in the reply."""
    request_ids: Sequence[str]
    """Those of the engine's requests."""
    params: SamplingParams | None
    """None if it asked for no text."""
    tokens: Callable[[], tuple[int, int]]
    """The tokens of prompts and outputs that were counted so far."""


class Exchange:
    """A request and its answer."""

    def __init__(self, scope: HTTPScope) -> None:
        scope.setdefault("state", {})[_KEY] = self
        self.scope = scope
        self.request_id = request_id(scope)
        self.began = time.time()
        """Unix time."""
        self.seconds = 0.0
        """Once it has ended: how long it took, to the last byte of the answer."""
        self.status = CLIENT_LEFT
        self._complete = False
        """Whether the whole answer was given to the connection."""
        self.model = ""
        """The name that the request gave, if it named a model that is served."""
        self.work: Work | None = None
        self._clock = time.perf_counter()

    @property
    def route(self) -> str:
        """The path of the route as it was declared; ``other`` if there is none."""
        return self.scope.get("path_template", "other")

    @property
    def quiet(self) -> bool:
        """Whether it went well and nobody wants to hear of it."""
        handler = self.scope.get("route_handler")
        return self.status < 400 and handler is not None and bool(handler.opt.get(QUIET))

    @property
    def client_left(self) -> bool:
        """Whether the client left before it had the whole answer."""
        return self.status == CLIENT_LEFT or not self._complete

    def answered(self, message: Message) -> None:
        """A part of the answer is about to be sent."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableScopeHeaders.from_message(message)
            headers["x-request-id"] = headers["request-id"] = self.request_id
        elif message["type"] == "http.response.body" and not message.get("more_body"):
            self._complete = True

    def end(self) -> None:
        """Nothing more is sent."""
        self.seconds = time.perf_counter() - self._clock


Listener = Callable[[Exchange], None]
"""Is told of each exchange that has ended, on the event loop."""


class Exchanges:
    """An ASGI application around `app`. Every response says which request it belongs to, and `listeners` hear of it."""

    def __init__(self, app: ASGIApp, listeners: Sequence[Listener]) -> None:
        self.app = app
        self._listeners = listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(cast("HTTPScope", scope))  # the server passes nothing else on

        async def tell_and_send(message: Message) -> None:
            exchange.answered(message)
            await send(message)

        try:
            await self.app(scope, receive, tell_and_send)
        finally:
            exchange.end()
            self._tell(exchange)

    def _tell(self, exchange: Exchange) -> None:
        for listener in self._listeners:
            try:
                listener(exchange)
            except Exception:
                logger.exception("what watches requests failed")


def exchange_of(scope: Scope) -> Exchange:
    """The exchange that a route is part of."""
    exchange: Exchange = scope["state"][_KEY]
    return exchange

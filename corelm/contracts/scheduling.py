"""The scheduling-policy contract: who runs next, and who gives way when memory runs out.

The core keeps budgets, blocks and all bookkeeping; a policy reads views and answers with keys or ids.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec


class PolicyContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy's factory is given."""

    settings: Any
    """An instance of the settings model that the plugin registered, or None."""


class RequestView(Protocol):
    """A live, read-only view of a request. Times are seconds of the engine's monotonic clock."""

    @property
    def request_id(self) -> str:
        """Unique among the living; the choices of one request beyond its first have ids of their own."""

    @property
    def arrival(self) -> float:
        """When the request reached the engine."""

    @property
    def priority(self) -> int:
        """Given by the client; smaller is more urgent, 0 is the default."""

    @property
    def tenant(self) -> str | None:
        """Who the request is for, as the frontend says."""

    @property
    def session(self) -> str | None:
        """The conversation it belongs to, as the frontend says."""

    @property
    def deadline(self) -> float | None:
        """When the client wants it finished."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_prefix_tokens(self) -> int:
        """Prompt tokens that the prefix cache has at this moment. Looked up when asked for, O(prompt)."""

    @property
    def output_tokens(self) -> int:
        """Tokens generated so far."""

    @property
    def max_tokens(self) -> int:
        """The most output tokens the request can get."""

    @property
    def num_blocks(self) -> int:
        """KV blocks the request holds now."""

    @property
    def preemptions(self) -> int:
        """How often it lost its blocks."""


class ServedTokens(NamedTuple):
    """What one step computed for a request. What a preemption made necessary again does not count."""

    request: RequestView
    prompt_tokens: int
    output_tokens: int


class SchedulingPolicy:
    """Override `key` for an order that is fixed on arrival, or `order` for one that changes with time.

    Calls come from the engine's thread between steps; a slow policy slows every step. What a policy does wrong
    (raising, naming ids it was not asked about, letting nobody run for 10 s, taking more than 1 s) is logged with its
    plugin's name, and first come, first served decides instead for that step (for a while, if the policy was slow or
    let nobody run); with the setting ``policy_errors=fail`` it ends the engine.
    """

    def key(self, request: RequestView) -> Any:
        """Sort key; the smallest runs first, ties go to the earlier arrival.

        Called once on arrival and once after each preemption, so waiting costs O(log n). On arrival a request can be
        refused by raising an `InvalidRequestError` or a `QueueFullError`.
        """
        return request.arrival

    def order(self, waiting: Sequence[RequestView], now: float) -> Iterable[str]:
        """Ids of waiting requests, the next to run first. Overriding this makes the policy dynamic.

        Then it is called once a step in which a request could be admitted, and `waiting` comes in the order of
        `key`. Admission stops at the first request that does not fit. Ids left out wait.
        """
        return [request.request_id for request in waiting]

    def victim(self, running: Sequence[RequestView], now: float) -> str:
        """Id of the running request that loses its blocks, when one needs a block and none is free.

        The default is the one that `key` puts last.
        """
        return max(running, key=lambda request: (self.key(request), request.arrival)).request_id

    def swap(self, request: RequestView) -> bool:
        """Whether a victim's keys and values are kept in host memory, if there is room; else they are computed anew."""
        return True

    def served(self, work: Sequence[ServedTokens]) -> None:
        """Account for a step. Called once after each step, and only if it is overridden."""
        return

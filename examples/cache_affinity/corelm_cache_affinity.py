"""Requests whose prompts the prefix cache knows run first, within limits."""

from collections.abc import Iterable, Sequence
from itertools import islice

from pydantic import BaseModel, Field

from corelm.api import PolicyContext, Register, RequestView, SchedulingPolicy, hookimpl

corelm_api = ((0, 2), (1, 0))


class CacheAffinitySettings(BaseModel):
    """Settings of the cache-affinity policy."""

    window: int = Field(32, ge=1, description="Of how many waiting requests, the oldest, the cached ones go first.")
    patience_s: float = Field(2.0, ge=0, description="Nobody is overtaken who has waited for this many seconds.")


class CacheAffinity(SchedulingPolicy):
    """Prefers what is cheap to compute now, before its blocks are given to others.

    What the cache holds changes with every step, so the order is made anew each time. Looking a prompt up costs time
    in proportion to its length: only the oldest requests are looked up, and only until their patience ends, from when
    on they go by arrival.
    """

    def __init__(self, settings: CacheAffinitySettings) -> None:
        self._window = settings.window
        self._patience_s = settings.patience_s

    def order(self, waiting: Sequence[RequestView], now: float) -> Iterable[str]:
        """`waiting` comes by arrival, which is the inherited `key`."""
        impatient = [request for request in waiting if now - request.arrival >= self._patience_s]
        others = iter(waiting[len(impatient) :])
        window = sorted(islice(others, self._window), key=lambda request: -request.cached_prefix_tokens)
        return [request.request_id for request in (*impatient, *window, *others)]


@hookimpl
def corelm_register_schedulers(register: Register[PolicyContext, SchedulingPolicy]) -> None:
    register(
        "cache_affinity",
        lambda context: CacheAffinity(context.settings),
        settings=CacheAffinitySettings,
        summary="prompts that the prefix cache knows first, within a window of the oldest",
    )

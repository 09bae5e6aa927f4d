"""Fair shares for tenants, however much each of them asks for."""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge

from corelm.api import RequestView, SchedulingPolicy, ServedTokens
from corelm_fcfs.settings import FairSettings


class Fair(SchedulingPolicy):
    """The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024).

    Each tenant has a counter of the work it was given: prompt tokens computed and tokens generated, weighted, divided
    by the tenant's weight. The smallest counter goes first; within a tenant, who came first. The largest counter
    gives way, with its latest request. Requests without a tenant are one tenant of their own, named "".

    A tenant that has nothing waiting earns nothing by that: when it comes back its counter is lifted to the floor,
    the smallest counter among the tenants that wait, or if none waits that of the last one that did.
    """

    def __init__(self, settings: FairSettings) -> None:
        self._settings = settings
        self._waiting: dict[str, set[str]] = {}
        """Ids of the requests that wait, by tenant. An aborted one stays until the next call of `order`."""
        self._last = ""
        """The tenant that stopped waiting last."""
        self._floor = 0.0
        """Where the last tenant came back to. It never falls: whoever waits was lifted to it."""
        self._counters: dict[str, float] = {}
        """Tenants that are not in it stand at the floor."""

    def key(self, request: RequestView) -> float:
        tenant = _tenant(request)
        if tenant not in self._waiting:
            self._floor = min(map(self._counter, self._waiting or (self._last,)))
            self._counters[tenant] = max(self._counter(tenant), self._floor)
        self._waiting.setdefault(tenant, set()).add(request.request_id)
        return request.arrival

    def order(self, waiting: Sequence[RequestView], now: float) -> Iterable[str]:
        queues: dict[str, list[RequestView]] = {}
        for request in waiting:
            queues.setdefault(_tenant(request), []).append(request)
        self._waiting = {tenant: {request.request_id for request in queue} for tenant, queue in queues.items()}
        # The others would be lifted to the floor when they come back, so they can be forgotten.
        self._counters = {t: c for t, c in self._counters.items() if c > self._floor or t in queues}
        lines = [self._line(tenant, queue) for tenant, queue in queues.items()]
        return (request_id for _, _, request_id in merge(*lines))

    def victim(self, running: Sequence[RequestView], now: float) -> str:
        return max(running, key=lambda request: (self._counter(_tenant(request)), request.arrival)).request_id

    def served(self, work: Sequence[ServedTokens]) -> None:
        for request, prompt_tokens, output_tokens in work:
            tenant = _tenant(request)
            self._counters[tenant] = self._counter(tenant) + self._charge(tenant, prompt_tokens, output_tokens)
            ids = self._waiting.get(tenant)
            if ids is not None:
                ids.discard(request.request_id)
                if not ids:
                    del self._waiting[tenant]
                    self._last = tenant

    def _line(self, tenant: str, queue: Iterable[RequestView]) -> Iterator[tuple[float, float, str]]:
        """One tenant's requests, each with the counter as it will be when those before it have been read.

        Without that, all requests of the tenant with the smallest counter would be admitted in one step.
        """
        counter = self._counter(tenant)
        for request in queue:
            yield counter, request.arrival, request.request_id
            counter += self._charge(tenant, request.prompt_tokens - request.cached_prefix_tokens, 0)

    def _charge(self, tenant: str, prompt_tokens: int, output_tokens: int) -> float:
        settings = self._settings
        work = settings.input_weight * prompt_tokens + settings.output_weight * output_tokens
        return work / settings.weights.get(tenant, 1.0)

    def _counter(self, tenant: str) -> float:
        return self._counters.get(tenant, self._floor)


def _tenant(request: RequestView) -> str:
    return request.tenant or ""

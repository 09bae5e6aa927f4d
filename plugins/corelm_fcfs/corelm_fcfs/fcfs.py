"""First come, first served."""

from corelm.api import RequestView, SchedulingPolicy


class FCFS(SchedulingPolicy):
    """Who came first runs first; who came last gives way. Priorities and tenants do not matter."""

    def key(self, request: RequestView) -> float:
        return request.arrival

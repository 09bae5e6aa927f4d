"""First-come-first-served and priority scheduling."""

from corelm.api import PolicyContext, Register, RequestView, SchedulingPolicy, hookimpl


class FCFS(SchedulingPolicy):
    """Who came first runs first; who came last gives way."""

    def key(self, request: RequestView) -> float:
        return request.arrival


class Priority(SchedulingPolicy):
    """The smallest priority number runs first; within one priority, who came first."""

    def key(self, request: RequestView) -> tuple[int, float]:
        return request.priority, request.arrival


@hookimpl
def corelm_register_schedulers(register: Register[PolicyContext, SchedulingPolicy]) -> None:
    register("fcfs", lambda context: FCFS(), summary="first come, first served")
    register("priority", lambda context: Priority(), summary="smallest priority number first, then first come")

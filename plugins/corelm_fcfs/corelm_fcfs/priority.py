"""Urgent requests first."""

from corelm.api import RequestView, SchedulingPolicy


class Priority(SchedulingPolicy):
    """The smallest priority number runs first; within one, who came first. Whoever is last in that order gives way.

    With `ageing_s`, every so many seconds of waiting are worth one level: at time t a request counts as
    ``priority - (t - arrival) / ageing_s``. All requests age at the same speed, so t moves them all alike and the
    order by ``priority + arrival / ageing_s`` is the same at every moment. A fixed key is enough: waiting costs
    O(log n), and a request is overtaken only by those that come within `ageing_s` seconds per level.
    """

    def __init__(self, ageing_s: float | None = None) -> None:
        self._levels_per_second = 1.0 / ageing_s if ageing_s else 0.0

    def key(self, request: RequestView) -> tuple[float, float]:
        return request.priority + request.arrival * self._levels_per_second, request.arrival

"""The request whose deadline is nearest runs first."""

import math

from corelm.api import PolicyContext, Register, RequestView, SchedulingPolicy, hookimpl

corelm_api = ((0, 2), (1, 0))


class EarliestDeadlineFirst(SchedulingPolicy):
    """Requests without a deadline come last; equal ones go by arrival.

    A deadline does not move, so a key that is fixed on arrival is enough. When memory runs out, the latest deadline
    gives way: that is the inherited `victim`, which takes whoever `key` puts last.
    """

    def key(self, request: RequestView) -> float:
        return math.inf if request.deadline is None else request.deadline


@hookimpl
def corelm_register_schedulers(register: Register[PolicyContext, SchedulingPolicy]) -> None:
    register("deadline", lambda context: EarliestDeadlineFirst(), summary="the nearest deadline first")

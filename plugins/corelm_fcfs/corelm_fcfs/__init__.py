"""Three scheduling policies: first come first served, by priority, and fair between tenants."""

from corelm.api import PolicyContext, Register, SchedulingPolicy, hookimpl
from corelm_fcfs.fair import Fair
from corelm_fcfs.fcfs import FCFS
from corelm_fcfs.priority import Priority
from corelm_fcfs.settings import FairSettings, PrioritySettings

__all__ = ["FCFS", "Fair", "FairSettings", "Priority", "PrioritySettings"]


@hookimpl
def corelm_register_schedulers(register: Register[PolicyContext, SchedulingPolicy]) -> None:
    register("fcfs", lambda context: FCFS(), summary="first come, first served")
    register(
        "priority",
        lambda context: Priority(context.settings.ageing_s),
        settings=PrioritySettings,
        summary="smallest priority number first, then first come; waiting can raise a request",
    )
    register(
        "fair",
        lambda context: Fair(context.settings),
        settings=FairSettings,
        summary="equal or weighted shares of the work for every tenant",
    )

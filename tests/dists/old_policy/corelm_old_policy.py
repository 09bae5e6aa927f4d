"""A policy from the days of API 0.1. Never change it: it stands for plugins whose authors have moved on."""

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, Field

from corelm.api import PolicyContext, Register, RequestView, SchedulingPolicy, hookimpl

corelm_api = ((0, 1), (1, 0))


class OldSettings(BaseModel):
    """Settings of the policy."""

    urgent_below: int = Field(0, description="Priorities below this go first.")


class OldPolicy(SchedulingPolicy):
    """The urgent first, then whoever came last."""

    def __init__(self, urgent_below: int) -> None:
        self._urgent_below = urgent_below

    def key(self, request: RequestView) -> tuple[bool, float]:
        return (request.priority >= self._urgent_below, -request.arrival)

    def order(self, waiting: Sequence[RequestView], now: float) -> Iterable[str]:
        return [view.request_id for view in sorted(waiting, key=self.key)]

    def victim(self, running: Sequence[RequestView], now: float) -> str:
        return max(running, key=lambda view: (view.num_blocks, view.output_tokens, -view.preemptions)).request_id


@hookimpl
def corelm_register_schedulers(register: Register[PolicyContext, SchedulingPolicy]) -> None:
    register(
        "old_policy",
        lambda context: OldPolicy(context.settings.urgent_below),
        settings=OldSettings,
        summary="last come, first served",
    )

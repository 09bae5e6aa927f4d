"""Whoever asks for the fewest tokens runs first."""

from pydantic import BaseModel, Field

from corelm.api import PolicyContext, Register, RequestView, SchedulingPolicy, hookimpl

corelm_api = ((0, 2), (1, 0))


class ShortestFirstSettings(BaseModel):
    """Settings of the shortest-first policy."""

    tokens_per_second_waited: float = Field(
        10.0, ge=0, description="A request counts as this many tokens shorter for each second it has waited."
    )


class ShortestFirst(SchedulingPolicy):
    """Orders by the tokens a request still needs.

    All requests age alike, so the order between two of them never changes and a fixed key is enough.
    """

    def __init__(self, tokens_per_second_waited: float) -> None:
        self._ageing = tokens_per_second_waited

    def key(self, request: RequestView) -> float:
        needed = request.prompt_tokens + request.max_tokens - request.output_tokens
        return needed + self._ageing * request.arrival


@hookimpl
def corelm_register_schedulers(register: Register[PolicyContext, SchedulingPolicy]) -> None:
    register(
        "shortest_first",
        lambda context: ShortestFirst(context.settings.tokens_per_second_waited),
        settings=ShortestFirstSettings,
        summary="fewest tokens first, with ageing",
    )

"""Two routes beside OpenAI's: what the engine is doing, and whether it is busy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from corelm_openai.hookspecs import OPEN, RouteContext

from corelm.api import RegisterExtension, hookimpl

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler

corelm_api = ((0, 2), (1, 0))


def make_routes(context: RouteContext) -> "list[HTTPRouteHandler]":
    """Build the routes. The web framework is imported here, once they are needed."""
    import msgspec
    from litestar import get

    @get("/stats")
    async def stats() -> dict[str, object]:
        await context.engine.check_health()
        return msgspec.structs.asdict(context.engine.stats())

    @get("/busy", opt={OPEN: True})
    async def busy() -> dict[str, bool]:
        await context.engine.check_health()
        return {"busy": context.engine.stats().waiting > 0}

    return [stats, busy]


@hookimpl
def corelm_openai_register_routes(register: "RegisterExtension[RouteContext, Sequence[HTTPRouteHandler]]") -> None:
    register("stats", make_routes, summary="GET /stats (with an API key) and GET /busy (without)")

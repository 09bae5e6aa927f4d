"""``/health``."""

from litestar import route
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp

from corelm.api import EngineDeadError, EngineStoppedError
from corelm_openai.hookspecs import OPEN
from corelm_openai.service import Service, json_response


def health_routes(service: Service) -> list[HTTPRouteHandler]:
    """Whether requests are served."""

    @route("/health", http_method=["GET", "HEAD"], opt={OPEN: True})
    async def health() -> ASGIApp:
        service.refuse_when_stopping()
        try:
            await service.engine.check_health()
        except EngineDeadError as error:
            raise EngineStoppedError("The engine has failed; the server's log says why.") from error
        return json_response({"status": service.engine.status})

    return [health]

"""``/health``, ``/health/ready`` and ``/health/live``."""

import msgspec
from litestar import route
from litestar.handlers import HTTPRouteHandler
from litestar.types import ASGIApp, Method

from corelm.api import EngineDeadError, EngineStatus, EngineStoppedError
from corelm_openai.hookspecs import OPEN
from corelm_openai.http.exchanges import QUIET
from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.service import Service, json_response

METHODS: tuple[Method, ...] = ("GET", "HEAD")


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine is."""

    status: EngineStatus


_ready = Operation(summary="Whether requests are served", reply=Health, errors=[503])
_live = Operation(summary="Whether the engine has not failed", reply=Health, errors=[503])


def health_routes(service: Service) -> list[HTTPRouteHandler]:
    """Whether requests are served, and whether there is any hope that they will be."""

    @route(["/health", "/health/ready"], http_method=METHODS, opt={OPEN: True, QUIET: True, OPERATION: _ready})
    async def ready() -> ASGIApp:
        """200 while requests are served: not while loading, nor once the server is told to stop."""
        service.refuse_when_stopping()
        try:
            await service.engine.check_health()
        except EngineDeadError as error:
            raise _failed() from error
        return json_response(Health(status=service.engine.status))

    @route("/health/live", http_method=METHODS, opt={OPEN: True, QUIET: True, OPERATION: _live})
    async def live() -> ASGIApp:
        """200 unless the engine has failed, after which only a new process helps."""
        try:
            await service.engine.check_health()
        except EngineDeadError as error:
            raise _failed() from error
        except EngineStoppedError:
            pass  # it is loading or draining
        return json_response(Health(status=service.engine.status))

    return [ready, live]


def _failed() -> EngineStoppedError:
    return EngineStoppedError("The engine has failed; the server's log says why.")

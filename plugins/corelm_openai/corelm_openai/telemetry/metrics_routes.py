"""``/metrics``."""

from litestar import get
from litestar.handlers import HTTPRouteHandler
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp
from prometheus_client import CONTENT_TYPE_LATEST

from corelm_openai.hookspecs import OPEN
from corelm_openai.http.exchanges import QUIET
from corelm_openai.openapi.operation import OPERATION, Operation
from corelm_openai.telemetry.metrics import Metrics

_operation = Operation(summary="Figures for Prometheus", reply=str, media_type="text/plain")


def metrics_routes(metrics: Metrics, *, is_open: bool) -> list[HTTPRouteHandler]:
    """What Prometheus reads. Asks for a key like other routes, unless it is open."""

    @get("/metrics", opt={OPEN: is_open, QUIET: True, OPERATION: _operation})
    async def read_metrics() -> ASGIApp:
        return ASGIResponse(body=metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    return [read_metrics]

"""Who watches the service, as the settings say."""

from typing import NamedTuple

from litestar.handlers import HTTPRouteHandler

from corelm.api import EngineClient, StartupError
from corelm_openai.http.exchanges import Listener
from corelm_openai.settings import OpenAISettings
from corelm_openai.telemetry.logs import log_access
from corelm_openai.telemetry.metrics import Metrics
from corelm_openai.telemetry.metrics_routes import metrics_routes


class Watching(NamedTuple):
    """What the application needs for those who watch it."""

    listeners: list[Listener]
    routes: list[HTTPRouteHandler]


def watch(engine: EngineClient, settings: OpenAISettings) -> Watching:
    """Log, metrics and traces. Raises `StartupError` if something that was asked for is not installed."""
    watching = Watching([], [])
    if settings.access_log:
        watching.listeners.append(log_access)
    if settings.metrics:
        metrics = Metrics(engine, settings.metrics_prefix)
        watching.listeners.append(metrics.count)
        watching.routes.extend(metrics_routes(metrics, is_open=settings.open_metrics))
    if settings.otlp_endpoint is not None:
        watching.listeners.append(_tracing(engine, settings.otlp_endpoint))
    return watching


def _tracing(engine: EngineClient, endpoint: str) -> Listener:
    try:
        from corelm_openai.telemetry.tracing import Tracing, exporter
    except ImportError as error:
        raise StartupError(
            "openai.otlp_endpoint needs OpenTelemetry, which is not installed: pip install 'corelm-openai[otel]'"
        ) from error
    return Tracing(engine, exporter(endpoint)).ended

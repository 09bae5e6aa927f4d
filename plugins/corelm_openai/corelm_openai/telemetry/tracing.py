"""A trace span for each HTTP request, made when it has ended and the engine has told where its time went.

Attributes follow OpenTelemetry's conventions for HTTP and for generative AI; those of latencies are vLLM's.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from corelm.api import EngineClient, Event, Observer, RequestFinished, SamplingParams
from corelm_openai.http.exchanges import Exchange

PATIENCE_S = 5.0
"""How long a span waits for what the engine says of its request: it says nothing of one that it never saw."""
MAX_UNCLAIMED = 10_000
"""Engine requests whose exchange has not ended yet, or will never come."""
OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
_propagator = TraceContextTextMapPropagator()


def exporter(endpoint: str) -> SpanExporter:
    """Sends spans to a collector over HTTP; `endpoint` may leave out the path."""
    return OTLPSpanExporter(endpoint.rstrip("/") + ("" if urlsplit(endpoint).path.strip("/") else "/v1/traces"))


class _Ended:
    """An exchange that has ended, and the engine's requests behind it that have."""

    def __init__(self, exchange: Exchange, finished: list[RequestFinished]) -> None:
        self.exchange = exchange
        self.finished = finished
        self.missing: set[str] = set()
        self.due = time.monotonic() + PATIENCE_S


class Tracing(Observer):
    """Makes the spans. `ended` is told of exchanges; the rest comes from the engine, in another thread."""

    def __init__(self, engine: EngineClient, exporter: SpanExporter) -> None:
        logging.getLogger("opentelemetry.trace").setLevel(logging.ERROR)  # it tells what is wrong with clients' headers
        own = Resource.create({"service.name": "corelm", "service.version": version("corelm")})
        resource = own.merge(OTELResourceDetector().detect())  # OTEL_SERVICE_NAME goes before our name
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("corelm_openai")
        self._lock = threading.Lock()
        self._unclaimed: dict[str, RequestFinished] = {}
        self._waiting: dict[str, _Ended] = {}
        """By the ids of the engine's requests that are missing; the oldest first."""
        engine.observe(self)

    def ended(self, exchange: Exchange) -> None:
        """An HTTP request has ended."""
        if exchange.quiet:
            return
        ids = exchange.work.request_ids if exchange.work is not None else ()
        with self._lock:
            found = [self._unclaimed.pop(request_id) for request_id in ids if request_id in self._unclaimed]
            ended = _Ended(exchange, found)
            if exchange.status < 400 or exchange.client_left:
                ended.missing = set(ids) - {event.request_id for event in found}
            self._waiting |= dict.fromkeys(ended.missing, ended)
            due = [*self._overdue(), *([] if ended.missing else [ended])]
        self._make(due)

    def events(self, batch: Sequence[Event]) -> None:
        with self._lock:
            finished = [event for event in batch if isinstance(event, RequestFinished)]
            due = [ended for event in finished if (ended := self._claim(event))]
            due += self._overdue()
        self._make(due)

    def engine_stopped(self) -> None:
        with self._lock:
            due = list(dict.fromkeys(self._waiting.values()))
        self._make(due)
        self._provider.shutdown()

    def _claim(self, event: RequestFinished) -> _Ended | None:
        """The exchange that has waited for this last."""
        ended = self._waiting.pop(event.request_id, None)
        if ended is None:
            self._unclaimed[event.request_id] = event
            if len(self._unclaimed) > MAX_UNCLAIMED:
                del self._unclaimed[next(iter(self._unclaimed))]
            return None
        ended.finished.append(event)
        ended.missing.remove(event.request_id)
        return None if ended.missing else ended

    def _overdue(self) -> list[_Ended]:
        overdue = []
        while self._waiting:
            ended = next(iter(self._waiting.values()))
            if ended.due > time.monotonic():
                break
            overdue.append(ended)
            for request_id in ended.missing:
                del self._waiting[request_id]
        return overdue

    def _make(self, due: Sequence[_Ended]) -> None:
        for ended in due:
            exchange = ended.exchange
            carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.scope["headers"]}
            start = int(exchange.began * 1e9)
            span = self._tracer.start_span(
                f"{exchange.scope['method']} {exchange.route}",
                context=_propagator.extract(carrier),
                kind=SpanKind.SERVER,
                attributes=dict(_attributes(exchange, ended.finished)),
                start_time=start,
            )
            if exchange.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
            span.end(start + int(exchange.seconds * 1e9))


def _attributes(exchange: Exchange, finished: Sequence[RequestFinished]) -> Iterator[tuple[str, AttributeValue]]:
    yield "http.request.method", exchange.scope["method"]
    yield "http.route", exchange.route
    yield "http.response.status_code", exchange.status
    yield "corelm.request_id", exchange.request_id
    if exchange.client_left:
        yield "corelm.client_left", True
    if exchange.status >= 500:
        yield "error.type", str(exchange.status)
    if exchange.model:
        yield "gen_ai.provider.name", "corelm"
        yield "gen_ai.request.model", exchange.model
    if exchange.route in OPERATIONS:
        yield "gen_ai.operation.name", OPERATIONS[exchange.route]
    if (work := exchange.work) is not None:
        prompt, completion = work.tokens()
        yield "gen_ai.response.id", work.reply_id
        yield "gen_ai.usage.input_tokens", prompt
        yield "gen_ai.usage.output_tokens", completion
        if work.params is not None:
            yield from _asked(work.params).items()
    if finished:
        yield "gen_ai.response.finish_reasons", [event.reason for event in finished]
        yield from _latencies(max(finished, key=lambda event: event.time)).items()


def _asked(params: SamplingParams) -> Mapping[str, AttributeValue]:
    asked = {
        "gen_ai.request.max_tokens": params.max_tokens,
        "gen_ai.request.temperature": params.temperature,
        "gen_ai.request.top_p": params.top_p,
        "gen_ai.request.choice.count": params.n,
        "gen_ai.request.seed": params.seed,
    }
    return {name: value for name, value in asked.items() if value is not None}


def _latencies(event: RequestFinished) -> Mapping[str, AttributeValue]:
    """Where the time of the engine's request that ended last went, in seconds."""
    times = event.timeline
    latencies = {
        "gen_ai.latency.time_in_queue": times.waiting_s,
        "gen_ai.latency.time_in_model_prefill": times.prefill_s,
        "gen_ai.latency.time_in_model_decode": times.decode_s,
        "gen_ai.latency.time_in_model_inference": times.prefill_s + times.decode_s,
        "gen_ai.latency.e2e": times.finished - times.arrival,
        "corelm.preemptions": times.preemptions,
    }
    if times.first_token is not None:
        latencies["gen_ai.latency.time_to_first_token"] = times.first_token - times.arrival
    return latencies

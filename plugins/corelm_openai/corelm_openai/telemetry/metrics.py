"""Counters and histograms for Prometheus.

They have the names of vLLM's, after a prefix that can be chosen, so that dashboards and routers made for these can be
used. What must miss nothing comes from the engine's own counts when it is asked for; histograms come from its events.
"""

import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from corelm.api import (
    EngineClient,
    EngineInfo,
    EngineStats,
    Event,
    Observer,
    Outcome,
    RequestFinished,
    RequestTimeline,
    StepFinished,
)
from corelm_openai.http.exchanges import Exchange

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600)
TOKENS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Others are counted together: what a client makes up must not make new series."""


class Metrics:
    """Everything that is counted of one engine and its HTTP service."""

    def __init__(self, engine: EngineClient, prefix: str) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(_EngineCounts(engine, prefix))
        build = Gauge(f"{prefix}:build_info", "What runs.", ["version", "python"], registry=self._registry)
        build.labels(version("corelm"), platform.python_version()).set(1)
        self._requests = Counter(
            f"{prefix}:http_requests",
            "HTTP requests answered, by route and status.",
            ["method", "handler", "status"],
            registry=self._registry,
        )
        self._durations = Histogram(
            f"{prefix}:http_request_duration_seconds",
            "From a request's headers to the last byte of its answer.",
            ["handler"],
            buckets=SECONDS,
            registry=self._registry,
        )
        engine.observe(RequestHistograms(self._registry, prefix))

    def count(self, exchange: Exchange) -> None:
        """Count an HTTP request that has ended."""
        method = exchange.scope["method"]
        self._requests.labels(method if method in METHODS else "other", exchange.route, str(exchange.status)).inc()
        self._durations.labels(exchange.route).observe(exchange.seconds)

    def text(self) -> bytes:
        """Everything as text in Prometheus' format."""
        return generate_latest(self._registry)


class _EngineCounts(Collector):
    """What the engine counts itself, as it is when it is asked for."""

    def __init__(self, engine: EngineClient, prefix: str) -> None:
        self._engine = engine
        self._prefix = prefix

    def collect(self) -> Iterator[Metric]:
        names = self._engine.model.names
        if names:  # else no model is loaded, and nothing was asked of it
            yield from self._families(self._engine.stats(), names[0])

    def _families(self, stats: EngineStats, model: str) -> Iterator[Metric]:
        used = 1 - stats.free_blocks / stats.total_blocks if stats.total_blocks else 0.0
        gauges = (
            ("num_requests_running", "Requests in the step that runs.", stats.running),
            ("num_requests_waiting", "Requests that wait to run.", stats.waiting),
            ("kv_cache_usage_perc", "Share of the KV cache that is in use, from 0 to 1.", used),
        )
        counters = (
            ("num_preemptions", "Times that a request lost its KV blocks to another.", stats.preemptions),
            (
                "prompt_tokens",
                "Prompt tokens read, those of the prefix cache included.",
                stats.prompt_tokens,
            ),
            ("generation_tokens", "Tokens generated.", stats.generation_tokens),
            ("prefix_cache_queries", "Prompt tokens looked for in the prefix cache.", stats.prompt_tokens),
            ("prefix_cache_hits", "Prompt tokens that the prefix cache had.", stats.cached_tokens),
            ("engine_steps", "Steps computed.", stats.steps),
        )
        for name, text, value in gauges:
            gauge = GaugeMetricFamily(f"{self._prefix}:{name}", text, labels=["model_name"])
            gauge.add_metric([model], value)
            yield gauge
        for name, text, value in counters:
            counter = CounterMetricFamily(f"{self._prefix}:{name}", text, labels=["model_name"])
            counter.add_metric([model], value)
            yield counter
        yield self._finished(stats, model)

    def _finished(self, stats: EngineStats, model: str) -> Metric:
        family = CounterMetricFamily(
            f"{self._prefix}:request_success",
            "Requests that ended, aborted and failed ones included, by reason.",
            labels=["model_name", "finished_reason"],
        )
        for reason in get_args(Outcome):
            family.add_metric([model, reason], stats.finished.get(reason, 0))
        return family


class RequestHistograms(Observer):
    """Where the time of requests went, and how large they were."""

    def __init__(self, registry: CollectorRegistry, prefix: str) -> None:
        def histogram(name: str, text: str, buckets: Sequence[float] = SECONDS) -> Histogram:
            return Histogram(f"{prefix}:{name}", text, ["model_name"], buckets=buckets, registry=registry)

        self._families = {
            "first_token": histogram("time_to_first_token_seconds", "From a request's arrival to its first token."),
            "per_token": histogram(
                "request_time_per_output_token_seconds", "Mean time from one token of a request to the next."
            ),
            "whole": histogram("e2e_request_latency_seconds", "From a request's arrival to its end."),
            "queue": histogram("request_queue_time_seconds", "From a request's arrival until it first ran."),
            "prefill": histogram("request_prefill_time_seconds", "Running without a token yet."),
            "decode": histogram("request_decode_time_seconds", "Running from the first token on."),
            "inference": histogram("request_inference_time_seconds", "Running."),
            "prompt": histogram("request_prompt_tokens", "Tokens of a request's prompt.", TOKENS),
            "generation": histogram("request_generation_tokens", "Tokens generated for a request.", TOKENS),
            "step": histogram("iteration_tokens_total", "Tokens computed in a step.", TOKENS),
        }
        self._of: dict[str, Histogram] = {}
        """The same for the model that is served."""

    def engine_started(self, info: EngineInfo) -> None:
        self._of = {name: family.labels(info.model.names[0]) for name, family in self._families.items()}

    def events(self, batch: Sequence[Event]) -> None:
        for event in batch:
            if isinstance(event, StepFinished):
                self._of["step"].observe(event.tokens)
            elif isinstance(event, RequestFinished):
                self._finished(event, event.timeline)

    def _finished(self, event: RequestFinished, times: RequestTimeline) -> None:
        of = self._of
        of["prompt"].observe(event.prompt_tokens)
        of["generation"].observe(event.completion_tokens)
        of["whole"].observe(times.finished - times.arrival)
        of["queue"].observe(times.waiting_s)
        if times.scheduled is not None:
            of["prefill"].observe(times.prefill_s)
            of["inference"].observe(times.prefill_s + times.decode_s)
        if times.first_token is not None:
            of["first_token"].observe(times.first_token - times.arrival)
            of["decode"].observe(times.decode_s)
            if event.completion_tokens > 1:
                of["per_token"].observe((times.finished - times.first_token) / (event.completion_tokens - 1))

"""Spans, before a real engine on the fake executor."""

import asyncio
import re
import sys
import threading
import time

import pytest
from corelm_openai.app import create_app
from corelm_openai.settings import OpenAISettings
from corelm_openai.telemetry import tracing
from helpers import start_engine
from openai_fakes import FakeEngine
from openai_http import Http, RealServer, raw_request, until
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from corelm.api import SamplingParams, StartupError
from corelm.testing import FakeExecutor

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
LATENCIES = {
    f"gen_ai.latency.{name}"
    for name in (
        "e2e",
        "time_in_queue",
        "time_in_model_prefill",
        "time_in_model_decode",
        "time_in_model_inference",
        "time_to_first_token",
    )
}


@pytest.fixture
def exported(monkeypatch):
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(tracing, "exporter", lambda endpoint: exporter)
    return exporter


@pytest.fixture
def settings():
    return OpenAISettings(port=0, otlp_endpoint="http://collector.invalid:4318")


@pytest.fixture
async def engine():
    engine = await start_engine(FakeExecutor(num_blocks=4096))
    yield engine
    await engine.stop()


async def spans_of(engine, exported):
    """All spans; they are exported at the latest when the engine stops."""
    await engine.stop()
    return exported.get_finished_spans()


async def complete(http, headers=None, **body):
    body = {"model": "fake", "prompt": "hello", "max_tokens": 4, "ignore_eos": True, **body}
    return await http.post("/v1/completions", json=body, headers=headers)


async def test_a_span_says_what_was_asked_and_where_the_time_went(exported, http, engine):
    before = time.time_ns()
    response = await complete(
        http,
        {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"},
        temperature=0.5,
        top_p=0.9,
        seed=7,
        n=2,
        user="u",
    )
    after = time.time_ns()
    [span] = await spans_of(engine, exported)
    assert (span.name, span.kind) == ("POST /v1/completions", SpanKind.SERVER)
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert before - 1e6 < span.start_time < span.end_time < after + 1e6
    assert span.status.status_code is StatusCode.UNSET
    assert span.resource.attributes["service.name"] == "corelm"
    attributes = dict(span.attributes)
    latencies = {name: attributes.pop(name) for name in LATENCIES}
    assert attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/completions",
        "http.response.status_code": 200,
        "corelm.request_id": "mine",
        "corelm.preemptions": 0,
        "gen_ai.provider.name": "corelm",
        "gen_ai.operation.name": "text_completion",
        "gen_ai.request.model": "fake",
        "gen_ai.request.max_tokens": 4,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.seed": 7,
        "gen_ai.response.id": response.json()["id"],
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 8,
    }
    parts = [latencies[f"gen_ai.latency.time_in_{part}"] for part in ("queue", "model_prefill", "model_decode")]
    assert sum(parts) == pytest.approx(latencies["gen_ai.latency.e2e"], abs=1e-6)
    assert 0 < latencies["gen_ai.latency.time_to_first_token"] <= latencies["gen_ai.latency.e2e"]


async def test_one_span_for_each_request_of_any_kind(exported, http, engine):
    await complete(http, stream=True)
    await complete(http, prompt=["a", "b"], max_tokens=1)
    await complete(http, prompt="")
    await http.get("/v1/nothing")
    await http.get("/health")
    await http.get("/metrics")
    spans = await spans_of(engine, exported)
    told = {(span.attributes["http.route"], span.attributes["http.response.status_code"]) for span in spans}
    assert told == {("/v1/completions", 200), ("/v1/completions", 400), ("other", 404)}
    assert len(spans) == 4
    reasons = [span.attributes.get("gen_ai.response.finish_reasons") for span in spans]
    assert sorted(filter(None, reasons)) == [("length",), ("length", "length")]
    assert len({span.context.trace_id for span in spans}) == 4


async def test_a_parent_that_is_not_sampled_gets_no_span(exported, http, engine):
    await complete(http, {"traceparent": f"00-{TRACE}-{PARENT}-00"})
    await complete(http, {"traceparent": "00-nonsense"})
    [span] = await spans_of(engine, exported)
    assert span.parent is None


async def test_headers_that_are_wrong_are_not_logged(exported, http, engine, caplog):
    parent = f"00-{TRACE}-{PARENT}-01"
    for state in ("FAKE LINE=1", "FAKE", "=,=,=", "a=FAKE=" + "b" * 300):
        await complete(http, {"traceparent": parent, "tracestate": state})
    assert len(await spans_of(engine, exported)) == 4
    assert "FAKE" not in caplog.text


async def test_what_failed_is_marked(exported, http, engine, stop):
    stop.set()
    assert (await complete(http)).status_code == 503
    [span] = await spans_of(engine, exported)
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["error.type"] == "503"


async def test_a_client_that_left(exported, settings):
    reached, go = threading.Event(), threading.Event()

    def hold(plan):
        reached.set()
        assert go.wait(20)

    engine = await start_engine(FakeExecutor(num_blocks=4096, on_step=hold))
    async with RealServer(engine, settings) as server:
        async with server.connect() as (_, writer):
            writer.write(raw_request("/v1/completions", {"model": "fake", "prompt": "hello", "max_tokens": 500}))
            await until(reached.is_set)
        await until(lambda: engine.stats().finished.get("abort") == 1)
        go.set()
        await until(lambda: engine.stats().running == 0)
    [span] = await spans_of(engine, exported)
    assert span.attributes["corelm.client_left"]
    assert span.attributes["gen_ai.response.finish_reasons"] == ("abort",)


async def test_a_span_does_not_wait_for_what_never_comes(exported, http, engine, monkeypatch):
    monkeypatch.setattr(tracing, "PATIENCE_S", 0.0)
    monkeypatch.setattr(tracing.Tracing, "events", lambda self, batch: None)
    made = []
    make = tracing.Tracing._make
    monkeypatch.setattr(tracing.Tracing, "_make", lambda self, due: made.append(len(due)) or make(self, due))
    await complete(http)
    await complete(http)
    assert made == [1, 1]
    spans = await spans_of(engine, exported)
    assert made == [1, 1, 0]
    assert [span.attributes["gen_ai.usage.output_tokens"] for span in spans] == [4, 4]
    assert not any("gen_ai.latency.e2e" in span.attributes for span in spans)


async def test_what_is_never_claimed_is_forgotten(exported, settings, engine, monkeypatch):
    monkeypatch.setattr(tracing, "MAX_UNCLAIMED", 3)
    watching = tracing.Tracing(engine, exported)
    for _ in range(10):
        await (await engine.generate("hello", SamplingParams(max_tokens=1))).result()
    await engine.stop()
    assert len(watching._unclaimed) == 3


class Unreachable(SpanExporter):
    """Fails as an exporter does whose collector is away."""

    def export(self, spans):
        raise ConnectionError("nobody there")

    def shutdown(self):
        pass


async def test_a_collector_that_is_away_harms_nobody(monkeypatch, settings, engine, caplog):
    monkeypatch.setattr(tracing, "exporter", lambda endpoint: Unreachable())
    async with Http(engine, settings) as http:
        for _ in range(3):
            assert (await complete(http)).status_code == 200
    await engine.stop()
    assert "switched off" not in caplog.text


def test_without_the_extra_there_is_a_remedy(monkeypatch, settings, stop):
    monkeypatch.delitem(sys.modules, "corelm_openai.telemetry.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(StartupError, match=re.escape("pip install 'corelm-openai[otel]'")):
        create_app(FakeEngine(), settings, stop)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://host:4318", "http://host:4318/v1/traces"),
        ("https://host:4318/", "https://host:4318/v1/traces"),
        ("http://host/own/path", "http://host/own/path"),
    ],
)
def test_where_spans_are_sent(given, url):
    exporter = tracing.exporter(given)
    assert exporter._endpoint == url
    exporter.shutdown()


async def test_spans_travel_to_a_collector(engine):
    received = asyncio.Event()
    bodies = []

    async def collect(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
        bodies.append((head, await reader.readexactly(length)))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()
        received.set()

    async with await asyncio.start_server(collect, "127.0.0.1", 0) as collector:
        port = collector.sockets[0].getsockname()[1]
        async with Http(engine, OpenAISettings(otlp_endpoint=f"http://127.0.0.1:{port}")) as http:
            await complete(http)
        await engine.stop()
        await asyncio.wait_for(received.wait(), 10)
    head, body = bodies[0]
    assert head.startswith(b"POST /v1/traces HTTP/1.1\r\n")
    assert b"gen_ai.latency.time_to_first_token" in body

"""``/metrics``, before a real engine on the fake executor."""

import asyncio
import threading

import pytest
from corelm_openai.app import create_app
from corelm_openai.settings import OpenAISettings
from helpers import start_engine
from openai_fakes import FakeEngine
from openai_http import Http, RealServer, raw_request, until
from prometheus_client.parser import text_string_to_metric_families

from corelm import SamplingParams
from corelm.engine.async_engine import AsyncEngine
from corelm.testing import FakeExecutor

HISTOGRAMS = {
    "corelm:time_to_first_token_seconds",
    "corelm:request_time_per_output_token_seconds",
    "corelm:e2e_request_latency_seconds",
    "corelm:request_queue_time_seconds",
    "corelm:request_prefill_time_seconds",
    "corelm:request_decode_time_seconds",
    "corelm:request_inference_time_seconds",
    "corelm:request_prompt_tokens",
    "corelm:request_generation_tokens",
    "corelm:iteration_tokens_total",
}
COUNTERS = {
    "corelm:num_preemptions",
    "corelm:prompt_tokens",
    "corelm:generation_tokens",
    "corelm:prefix_cache_queries",
    "corelm:prefix_cache_hits",
    "corelm:engine_steps",
}
GAUGES = {"corelm:num_requests_running", "corelm:num_requests_waiting", "corelm:kv_cache_usage_perc"}


class Hold:
    """Lets no step run until it is opened."""

    def __init__(self):
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self, plan):
        self.reached.set()
        assert self.go.wait(20)


@pytest.fixture
def hold():
    hold = Hold()
    hold.go.set()
    yield hold
    hold.go.set()


@pytest.fixture
async def engine(hold):
    engine = await start_engine(FakeExecutor(num_blocks=4096, on_step=hold))
    yield engine
    hold.go.set()
    await engine.stop()


async def read(http):
    """The samples by name, each a list of (labels, value); and the families by name."""
    response = await http.get("/metrics")
    assert response.status_code == 200
    families = {family.name: family for family in text_string_to_metric_families(response.text)}
    samples = {}
    for family in families.values():
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples, families


async def value(http, name, **labels):
    """The one sample with these labels; 0 if there is none."""
    samples, _ = await read(http)
    found = [number for have, number in samples.get(name, []) if labels.items() <= have.items()]
    assert len(found) <= 1
    return found[0] if found else 0


async def until_value(http, wanted, name, **labels):
    async with asyncio.timeout(10):
        while await value(http, name, **labels) != wanted:  # noqa: ASYNC110 - observers are told in a thread
            await asyncio.sleep(0.005)


async def complete(http, **body):
    return await http.post("/v1/completions", json={"model": "fake", "prompt": "hello", "max_tokens": 4, **body})


async def test_names_kinds_and_labels(http):
    await complete(http)
    await until_value(http, 1, "corelm:e2e_request_latency_seconds_count")
    _, families = await read(http)
    ours = {name: family for name, family in families.items() if name.startswith("corelm:")}
    ours = {name: family for name, family in ours.items() if not name.endswith("_created")}
    kinds = {
        "histogram": HISTOGRAMS | {"corelm:http_request_duration_seconds"},
        "counter": COUNTERS | {"corelm:request_success", "corelm:http_requests"},
        "gauge": GAUGES | {"corelm:build_info"},
    }
    for kind, names in kinds.items():
        assert {name for name, family in ours.items() if family.type == kind} == names
    labels = {name: {frozenset(sample.labels) - {"le"} for sample in ours[name].samples} for name in ours}
    for name in HISTOGRAMS | COUNTERS | GAUGES:
        assert labels[name] == {frozenset({"model_name"})}
        assert {sample.labels["model_name"] for sample in ours[name].samples} == {"fake"}
    assert labels["corelm:request_success"] == {frozenset({"model_name", "finished_reason"})}
    assert labels["corelm:http_requests"] == {frozenset({"method", "handler", "status"})}
    assert labels["corelm:http_request_duration_seconds"] == {frozenset({"handler"})}
    assert labels["corelm:build_info"] == {frozenset({"version", "python"})}
    assert families["process_resident_memory_bytes"].samples[0].value > 0


async def test_with_another_prefix_the_names_are_vllms(engine):
    async with Http(engine, OpenAISettings(metrics_prefix="vllm")) as http:
        _, families = await read(http)
    assert {"vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:request_success"} <= families.keys()
    assert not any(name.startswith("corelm") for name in families)


async def test_what_requests_took_and_gave(http):
    for _ in range(2):
        assert (await complete(http, prompt="x" * 9, max_tokens=5, ignore_eos=True)).status_code == 200
    await until_value(http, 2, "corelm:request_success_total", finished_reason="length")
    await until_value(http, 2, "corelm:e2e_request_latency_seconds_count")
    assert await value(http, "corelm:prompt_tokens_total") == 18
    assert await value(http, "corelm:generation_tokens_total") == 10
    assert await value(http, "corelm:prefix_cache_queries_total") == 18
    assert await value(http, "corelm:prefix_cache_hits_total") == 8
    assert await value(http, "corelm:engine_steps_total") == 10
    for name in HISTOGRAMS - {"corelm:iteration_tokens_total"}:
        assert await value(http, f"{name}_count") == 2
    assert await value(http, "corelm:request_prompt_tokens_sum") == 18
    assert await value(http, "corelm:request_generation_tokens_sum") == 10
    assert await value(http, "corelm:iteration_tokens_total_sum") == 18 - 8 + 8
    parts = [
        await value(http, f"corelm:{part}_seconds_sum") for part in ("request_queue_time", "request_inference_time")
    ]
    assert sum(parts) == pytest.approx(await value(http, "corelm:e2e_request_latency_seconds_sum"), abs=1e-6)
    assert 0 < await value(http, "corelm:time_to_first_token_seconds_sum") < sum(parts)


async def test_gauges_fall_to_nothing_after_a_mass_cancel(engine, hold, settings):
    hold.go.clear()
    async with RealServer(engine, settings) as server, Http(engine, settings) as http:
        connections = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(70)]
        for _, writer in connections:
            writer.write(raw_request("/v1/completions", {"model": "fake", "prompt": "hello", "max_tokens": 500}))
        await until(hold.reached.is_set)
        await until(lambda: engine.stats().running + engine.stats().waiting == 70)
        busy, _ = await read(http)
        assert busy["corelm:num_requests_running"][0][1] + busy["corelm:num_requests_waiting"][0][1] == 70
        for _, writer in connections:
            writer.close()
            await writer.wait_closed()
        await until(lambda: engine.stats().finished.get("abort") == 70)
        hold.go.set()
        async with asyncio.timeout(2):
            for name in GAUGES:
                await until_value(http, 0, name)
        samples, _ = await read(http)
        ended = {labels["finished_reason"]: number for labels, number in samples["corelm:request_success_total"]}
        assert ended == {"stop": 0, "length": 0, "abort": 70, "error": 0}


async def test_every_way_to_end_is_counted_once(http, hold):
    await complete(http)
    await complete(http, stop=list("abcd"), max_tokens=500, ignore_eos=True)
    hold.reached.clear()
    hold.go.clear()
    leaving = asyncio.create_task(complete(http, max_tokens=500))
    await until(hold.reached.is_set)
    leaving.cancel()
    hold.go.set()
    assert (await complete(http, prompt="")).status_code == 400
    for reason, count in {"length": 1, "stop": 1, "abort": 1, "error": 0}.items():
        await until_value(http, count, "corelm:request_success_total", finished_reason=reason)


async def test_http_requests_are_counted_by_route_and_status(http):
    await complete(http)
    await complete(http, prompt="")
    await http.get("/v1/models/nothing")
    for path in ("/a", "/b"):
        await http.get(path)
    await http.request("BREW", "/v1/completions")
    await http.get("/health")
    samples, _ = await read(http)
    names = ("method", "handler", "status")
    counted = {tuple(labels[n] for n in names): number for labels, number in samples["corelm:http_requests_total"]}
    assert counted == {
        ("POST", "/v1/completions", "200"): 1,
        ("POST", "/v1/completions", "400"): 1,
        ("GET", "/v1/models/{name}", "404"): 1,
        ("GET", "other", "404"): 2,
        ("other", "other", "405"): 1,
        ("GET", "/health", "200"): 1,
    }
    durations = {labels["handler"]: n for labels, n in samples["corelm:http_request_duration_seconds_count"]}
    assert durations["/v1/completions"] == 2


async def test_there_is_something_to_read_before_the_model_is_loaded(settings):
    engine = AsyncEngine(lambda progress: pytest.fail("not loaded"))
    async with Http(engine, settings) as http:
        samples, _ = await read(http)
    assert samples["corelm:build_info"][0][1] == 1
    assert "corelm:num_requests_running" not in samples
    await engine.stop()


async def test_a_strange_name_of_a_model_is_quoted(settings):
    engine = AsyncEngine(lambda progress: pytest.fail("not loaded"), names=['a"b\\c\nd'])
    async with Http(engine, settings) as http:
        samples, _ = await read(http)
    assert samples["corelm:num_requests_running"] == [({"model_name": 'a"b\\c\nd'}, 0)]
    await engine.stop()


async def test_engines_in_one_process_are_counted_apart(http, hold):
    other = await start_engine()
    async with Http(other, OpenAISettings()) as second:
        await complete(http)
        await until_value(http, 1, "corelm:request_success_total", finished_reason="length")
        assert await value(second, "corelm:request_success_total", finished_reason="length") == 0
    await other.stop()


async def test_it_asks_for_a_key_unless_it_is_open(engine):
    async with Http(engine, OpenAISettings(api_keys=["k"])) as http:
        assert (await http.get("/metrics")).status_code == 401
        assert (await http.get("/metrics", headers={"authorization": "Bearer k"})).status_code == 200
    async with Http(engine, OpenAISettings(api_keys=["k"], open_metrics=True)) as http:
        response = await http.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=")


def test_it_can_be_switched_off(stop):
    engine = FakeEngine()
    app = create_app(engine, OpenAISettings(metrics=False), stop)
    assert "/metrics" not in {route.path for route in app.app.routes}
    assert not engine.observers


async def test_embeddings_have_no_first_token(http, engine):
    await http.post("/v1/embeddings", json={"model": "fake", "input": "hello"})
    await until_value(http, 1, "corelm:e2e_request_latency_seconds_count")
    assert await value(http, "corelm:time_to_first_token_seconds_count") == 0
    await engine.generate("hello", SamplingParams(max_tokens=1))
    await until_value(http, 2, "corelm:e2e_request_latency_seconds_count")
    assert await value(http, "corelm:request_time_per_output_token_seconds_count") == 0

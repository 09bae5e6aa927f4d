"""Third-party policies change who finishes first."""

import json

import pytest

FINISHING_ORDER = """
import asyncio, json, sys
from corelm import SamplingParams, create_engine
from corelm.api import RequestOptions

async def main(cases, warm_up):
    engine = create_engine("fake", executor="fake", tokenizer="fake", max_num_seqs=1, policy_errors="fail")
    await engine.start()
    finished = []

    async def ask(name, prompt, count, deadline_s):
        params = SamplingParams(max_tokens=count, ignore_eos=True)
        stream = await engine.generate(prompt, params, options=RequestOptions(deadline_s=deadline_s))
        if name == "first":
            await anext(stream)
            running.set()
        await stream.result()
        finished.append(name)

    running = asyncio.Event()
    if warm_up:
        await (await engine.generate(warm_up, SamplingParams(max_tokens=1))).result()
    first = asyncio.create_task(ask("first", "hello", 100, None))
    await running.wait()
    await asyncio.gather(first, *(ask(*case) for case in cases))
    await engine.stop()
    print(json.dumps(finished))

asyncio.run(main(*json.loads(sys.argv[1])))
"""
STEP = {"CORELM_FAKE_STEP_S": "0.003"}


@pytest.fixture
def finishing_order(clean):
    """Asks for (name, prompt, max_tokens, deadline in seconds) while one request runs; names as they finish."""

    def run(cases, warm_up="", **variables):
        done = clean.run("-c", FINISHING_ORDER, json.dumps([cases, warm_up]), **STEP, **variables)
        first, *others = json.loads(done.stdout)
        assert first == "first"
        return others

    return run


LENGTHS = [("long", "hello", 100, None), ("middle", "hello", 50, None), ("short", "hello", 5, None)]


def test_an_installed_policy_is_selected_by_name(finishing_order):
    assert finishing_order(LENGTHS, CORELM_SCHEDULER="fcfs") == ["long", "middle", "short"]
    settings = {"CORELM_SHORTEST_FIRST_TOKENS_PER_SECOND_WAITED": "0"}
    assert finishing_order(LENGTHS, CORELM_SCHEDULER="shortest_first", **settings) == ["short", "middle", "long"]


def test_the_nearest_deadline_runs_first(finishing_order):
    cases = [("never", "hello", 3, None), ("late", "hello", 3, 60), ("soon", "hello", 3, 5), ("later", "hello", 3, 90)]
    assert finishing_order(cases, CORELM_SCHEDULER="deadline") == ["soon", "late", "later", "never"]


KNOWN = "a system prompt of several blocks that the cache knows: "
PROMPTS = [
    ("new", "some other prompt that nobody has asked about", 3, None),
    ("half", KNOWN[:32] + "?", 3, None),
    ("whole", KNOWN + "!", 3, None),
]


def test_what_the_cache_knows_runs_first(finishing_order):
    def order(**settings):
        return finishing_order(PROMPTS, KNOWN, CORELM_SCHEDULER="cache_affinity", **settings)

    assert order() == ["whole", "half", "new"]
    # The first two are the window; then the rest by arrival.
    assert order(CORELM_CACHE_AFFINITY_WINDOW="2") == ["half", "whole", "new"]
    assert order(CORELM_CACHE_AFFINITY_PATIENCE_S="0") == ["new", "half", "whole"]


STARVING = """
import asyncio, time
from corelm import SamplingParams, create_engine

async def main():
    engine = create_engine("fake", executor="fake", tokenizer="fake", max_num_seqs=1)
    await engine.start()
    known = "a system prompt of several blocks that the cache knows: "
    served = asyncio.Event()

    async def flood():
        while not served.is_set():
            await (await engine.generate(known, SamplingParams(max_tokens=5, ignore_eos=True))).result()

    flooding = [asyncio.create_task(flood()) for _ in range(4)]
    while engine.stats().waiting < 2:
        await asyncio.sleep(0)
    began = time.monotonic()
    stream = await engine.generate("what nobody has asked about", SamplingParams(max_tokens=1))
    await stream.result()
    served.set()
    print(time.monotonic() - began)
    await asyncio.gather(*flooding)
    await engine.stop()

asyncio.run(main())
"""


def test_patience_bounds_how_long_the_cached_ones_go_first(clean):
    def waited(patience):
        settings = {"CORELM_SCHEDULER": "cache_affinity", "CORELM_CACHE_AFFINITY_PATIENCE_S": patience}
        return float(clean.run("-c", STARVING, **STEP, **settings).stdout)

    assert 0.5 < waited("0.5") < 5
    assert 1.5 < waited("1.5") < 6

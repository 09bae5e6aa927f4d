"""The comparison with peers, with engines that are scripts: the protocol, the turns, what is said of a broken one."""

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

COMPARE = Path(__file__).parents[2] / "benchmarks" / "compare"
MODULES = ("figures", "in_process", "process", "worker", "workload")

HTTP_KEYS = ("tokens_per_second", "first_token_ms", "ms_per_token", "generator_cpu_percent")

FAKE = """
import sys
sys.path.insert(0, sys.argv[1])
from serving import Clock, serve

class Fake:
    version, details = "1.0", "none"

    def generate(self, prompts, max_tokens):
        print("some library talks")
        clock = Clock(len(prompts))
        for prompt in prompts:
            clock.first_token()
        return clock.answer(len(prompts) * max_tokens)

    def score(self, prompts):
        raise NotImplementedError("no log-probabilities")

serve(Fake)
"""


@pytest.fixture
def compare(monkeypatch):
    """The modules of the comparison, which import each other as scripts do."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(COMPARE)
    yield SimpleNamespace(**{name: import_module(name) for name in MODULES}, engines=import_module("engines.engine"))
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(COMPARE)):
            del sys.modules[name]


def fake(compare, name, script):
    command = compare.process.Command([sys.executable, "-c", script, COMPARE / "workers"])
    return compare.engines.Engine(name, lambda place: None, lambda place: command, "it has none")


def test_engines_take_turns_and_a_broken_one_is_reported(compare, tmp_path):
    failures = {}
    broken = fake(compare, "broken", "raise SystemExit('no such model')")
    with compare.in_process.workers([fake(compare, "fake", FAKE), broken], None, tmp_path, failures) as running:
        measured = list(compare.in_process.measure(running, ["decode-16"], 2, failures))
        perplexities = compare.in_process.score(running, [[1, 2, 3]], failures)
        assert running["fake"].process.resident_mib() > 1
        assert running["fake"].ready["version"] == "1.0"

    assert [(work, engine) for work, engine, _ in measured] == [("decode-16", "fake")] * 2
    answers = [answer for _, _, answer in measured]
    assert [answer["tokens"] for answer in answers] == [16 * 128] * 2
    assert all(0 < answer["first_token_seconds"] <= answer["seconds"] for answer in answers)
    assert not running["fake"].process.alive
    assert perplexities == {}
    assert "no such model" in failures["broken"]["start"]
    assert failures["fake"] == {"perplexity": "NotImplementedError: no log-probabilities"}


def test_an_engine_that_makes_too_few_tokens_has_failed(compare, tmp_path):
    failures = {}
    lazy = fake(compare, "lazy", FAKE.replace("* max_tokens", "* 3"))
    with compare.in_process.workers([lazy], None, tmp_path, failures) as running:
        assert list(compare.in_process.measure(running, ["decode-1"], 1, failures)) == []
    assert failures == {"lazy": {"decode-1": "it made 3 tokens instead of 128"}}


def test_ratios_compare_with_the_best_peer(compare):
    answer = {"first_token_seconds": 0.1, "tokens": 128}
    results = {
        "engines": ["corelm", "corelm-w8", "slow", "fast"],
        "in_process": {
            "decode-1": {
                "corelm": [{**answer, "seconds": 1.1}] * 3,
                "slow": [{**answer, "seconds": 4.4}],
                "fast": [{**answer, "seconds": 2.2}],
            },
        },
        "http": {"8": {"corelm": [dict.fromkeys(HTTP_KEYS, 10.0)]}},
    }
    ratios = compare.figures.ratios(results)
    assert ratios["corelm"] == {
        "decode-1: output tokens/s": pytest.approx(2.0),
        "decode-1: ms/token after the first": pytest.approx(2.1),
    }
    assert ratios["corelm-w8"] == {}


def test_prompts_share_nothing_but_what_a_relative_should(compare):
    import random

    work = compare.workload.WORKS["prefix-warm"]
    [prompt] = work.prompts(random.Random(1))
    other = compare.workload.relative(prompt, random.Random(2))
    assert len(prompt) == len(other) == work.prompt_tokens
    assert prompt[:930] == other[:930]
    assert prompt[930:] != other[930:]
    [first, second] = compare.workload.WORKS["decode-16"].prompts(random.Random(1))[:2]
    assert first[:4] != second[:4]

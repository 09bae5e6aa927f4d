"""The policies under the real scheduler, on the fake executor."""

from collections import Counter, defaultdict
from itertools import count

import pytest
from corelm_fcfs import FCFS, Fair, FairSettings, Priority
from helpers import greedy, make_engine

from corelm.api import ConfigurationError, PolicyContext, RequestOptions
from corelm.plugins import PluginHost
from corelm.settings import load_settings
from corelm.testing import FakeExecutor

POLICIES = [FCFS, Priority, lambda: Priority(2.0), lambda: Fair(FairSettings(weights={"b": 2.0}))]
IDS = ["fcfs", "priority", "ageing", "fair"]


class Meter:
    """Notes the weighted work of each tenant."""

    def served(self, work):
        super().served(work)
        self.total = getattr(self, "total", Counter())
        for request, prompt, output in work:
            self.total[request.tenant] += prompt + 2 * output


class MeteredFCFS(Meter, FCFS):
    pass


class MeteredFair(Meter, Fair):
    pass


def gap_over_time(policy, steps):
    """How far a tenant that asks ten times as often as another is ahead of it, after each step."""
    ids = count()
    engine = make_engine(FakeExecutor(num_blocks=16), policy, max_num_seqs=4, prefix_cache=False)
    gaps = []
    for step in range(steps):
        for tenant in ["loud"] + ["quiet"] * (step % 10 == 0):
            number = next(ids)
            request = engine.intake.prepare(
                [number % 256] * 8,
                greedy(max_tokens=24, ignore_eos=True),
                request_id=str(number),
                arrival=float(step),
                options=RequestOptions(tenant=tenant),
            )
            engine.add(request)
        engine.step()
        engine.check_integrity()
        gaps.append(policy.total["loud"] - policy.total["quiet"])
    return gaps


def test_under_fair_the_gap_between_two_tenants_is_bounded_and_under_fcfs_it_grows():
    fair, fcfs = gap_over_time(MeteredFair(FairSettings()), 400), gap_over_time(MeteredFCFS(), 400)
    assert max(fair) - min(fair) <= 2 * 2.0 * 64, "twice the weighted tokens that the KV cache holds"
    assert fcfs[199] > 2 * max(fair)
    assert fcfs[399] > 1.8 * fcfs[199]


def texts(policy, num_blocks):
    """What every choice of some requests says, and how often one was preempted."""
    engine = make_engine(FakeExecutor(num_blocks=num_blocks), policy, max_num_seqs=8)
    found, names = defaultdict(str), {}
    for i in range(6):
        request = engine.intake.prepare(
            f"request {i}: ",
            greedy(n=1 + i % 4, temperature=1.0, seed=i, max_tokens=12, ignore_eos=True),
            request_id=f"r{i}",
            arrival=float(i // 3),
            options=RequestOptions(priority=i % 3, tenant="ab"[i % 2]),
        )
        names[request.number] = i
        engine.add(request)
    while engine.has_work:
        for number, output in engine.step():
            found[names[number], output.index] += output.text
        engine.check_integrity()
    return dict(found), engine.snapshot().preemptions


@pytest.mark.parametrize("policy", POLICIES, ids=IDS)
def test_requests_with_several_choices_end_well_when_memory_is_short(policy):
    ample, none = texts(FCFS(), num_blocks=512)
    short, some = texts(policy(), num_blocks=12)
    assert not none
    assert some
    assert short == ample


def create(name, *flags):
    host = PluginHost.load()
    settings = load_settings(host, flags)
    return host.create(host.select("scheduler", name), PolicyContext(settings=settings.plugin(name)))


def test_the_settings_reach_the_policies(view):
    requests = [view("old", 0.0, priority=1), view("new", 31.0)]
    assert min(requests, key=create("priority").key).request_id == "new"
    assert min(requests, key=create("priority", "--priority.ageing-s", "30").key).request_id == "old"

    waiting = [view("a0", 0.0, "a"), view("a1", 1.0, "a"), view("b0", 2.0, "b", prompt_tokens=9), view("b1", 3.0, "b")]
    assert list(create("fair").order(waiting, 4.0)) == ["a0", "b0", "a1", "b1"]
    assert list(create("fair", "--fair.weights", "b=2").order(waiting, 4.0)) == ["a0", "b0", "b1", "a1"]


@pytest.mark.parametrize(
    ("flag", "value"), [("--priority.ageing-s", "0"), ("--fair.weights", "a=-1"), ("--fair.output-weight", "nan")]
)
def test_settings_without_sense_are_refused(flag, value):
    with pytest.raises(ConfigurationError, match=flag):
        create("fair", flag, value)

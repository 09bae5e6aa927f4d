"""What a policy does wrong is reported, and nobody's request is lost by it."""

import asyncio
import sys

import pytest
from helpers import expected_text, greedy, make_engine, start_engine
from test_scheduler import drive, submit

from corelm.api import EngineDeadError, PolicyError, SamplingParams, SchedulingPolicy
from corelm.testing import FakeExecutor


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


CLOCK = Clock()


class Unknown(SchedulingPolicy):
    def order(self, waiting, now):
        return ["nobody"]

    def victim(self, running, now):
        return "nobody"


class Twice(SchedulingPolicy):
    def order(self, waiting, now):
        return [waiting[0].request_id] * 2


class Raises(SchedulingPolicy):
    def key(self, request):
        raise ZeroDivisionError("key")

    def order(self, waiting, now):
        yield waiting[-1].request_id
        raise ZeroDivisionError("order")

    def victim(self, running, now):
        raise ZeroDivisionError("victim")

    def swap(self, request):
        raise ZeroDivisionError("swap")

    def served(self, work):
        raise ZeroDivisionError("served")


class Unhashable(SchedulingPolicy):
    def order(self, waiting, now):
        return [[1], {}]


class NotIterable(SchedulingPolicy):
    def order(self, waiting, now):
        return None


class Incomparable(SchedulingPolicy):
    def key(self, request):
        return int(request.request_id) if int(request.request_id) % 2 else request.request_id


class Hostile(SchedulingPolicy):
    """Its keys raise when they are compared."""

    class Key:
        def __lt__(self, other):
            raise ZeroDivisionError("compare")

        __eq__ = __gt__ = __lt__
        __hash__ = None

    def key(self, request):
        return self.Key()


class Slow(SchedulingPolicy):
    def order(self, waiting, now):
        CLOCK.now += 2.0
        return [request.request_id for request in waiting]


class SlowIds(SchedulingPolicy):
    """Each id takes less than the limit, all of them more."""

    def order(self, waiting, now):
        for request in waiting:
            CLOCK.now += 0.9
            yield request.request_id


class GivesNone(SchedulingPolicy):
    def order(self, waiting, now):
        yield None


class Exits(SchedulingPolicy):
    def key(self, request):
        raise SystemExit(0)

    order = victim = lambda self, requests, now: sys.exit(0)


class Blames(SchedulingPolicy):
    """Raises corelm's own error, which anybody can."""

    def served(self, work):
        raise PolicyError("out of order")


class Clumsy(SchedulingPolicy):
    def key(self, request):
        return int("not a number")


POLICIES = [
    *(Unknown, Twice, Raises, Unhashable, NotIterable, Incomparable, Hostile, Slow),
    *(SlowIds, GivesNone, Exits, Blames, Clumsy),
]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_ends_and_the_log_names_the_policy(policy, caplog):
    executor = FakeExecutor(num_blocks=12, num_swap_blocks=8)
    engine = make_engine(executor, policy(), strict_policy=False, clock=CLOCK, max_num_seqs=3)
    requests = [submit(engine, f"prompt {i}", str(i), max_tokens=20) for i in range(6)]
    texts, _ = drive(engine, requests)
    assert texts == {str(i): expected_text(f"prompt {i}", 20) for i in range(6)}
    assert engine._scheduler.policy.failures > 0
    reports = [record for record in caplog.records if policy.__name__ in record.message]
    assert len(reports) == 1  # not one a step
    assert "first come, first served instead" in reports[0].message


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy is not SlowIds])
async def test_by_setting_it_ends_the_engine_with_a_clear_error(policy):
    engine = await start_engine(policy=policy(), strict_policy=True, clock=CLOCK, max_num_seqs=1)

    async def ask(name):
        with pytest.raises(EngineDeadError, match=policy.__name__):
            await (await engine.generate("p", greedy(), request_id=name)).result()

    await asyncio.gather(*map(ask, "0123"))
    assert engine.status == "errored"
    await engine.stop()


def test_after_a_failure_the_others_go_by_arrival():
    class Midway(SchedulingPolicy):
        def order(self, waiting, now):
            yield "2"
            raise ZeroDivisionError

    engine = make_engine(policy=Midway(), strict_policy=False, max_num_seqs=1)
    assert drive(engine, [submit(engine, "p", str(i)) for i in range(4)])[1] == ["2", "0", "1", "3"]


def test_a_policy_that_lets_nobody_run_is_overruled_after_a_while(caplog):
    class Nobody(SchedulingPolicy):
        def order(self, waiting, now):
            return []

    clock = Clock()
    engine = make_engine(policy=Nobody(), strict_policy=False, clock=clock)
    request = submit(engine, "p", "a")
    for _ in range(10):
        assert engine.step() == []
        clock.now += 1.0
    assert "nobody run" not in caplog.text
    clock.now += 2.0
    assert drive(engine, [request])[0] == {"a": expected_text("p")}
    assert "let nobody run for 10 s" in caplog.text


def test_a_slow_policy_is_left_alone_for_a_while():
    calls = []

    class Slow(SchedulingPolicy):
        def order(self, waiting, now):
            calls.append(now)
            clock.now += 2.0
            return [request.request_id for request in reversed(waiting)]

    clock = Clock()
    engine = make_engine(policy=Slow(), strict_policy=False, clock=clock, max_num_seqs=1)
    requests = [submit(engine, "p", str(i), max_tokens=1) for i in range(5)]
    assert drive(engine, requests)[1] == ["4", "0", "1", "2", "3"]
    assert len(calls) == 1
    clock.now += 21.0
    drive(engine, [submit(engine, "p", "later")])
    assert len(calls) == 2


async def test_by_setting_it_ends_the_engine_in_a_fork_too():
    class Fickle(SchedulingPolicy):
        def key(self, request):
            if "#" in request.request_id:
                raise ZeroDivisionError("no children")
            return request.arrival

    engine = await start_engine(policy=Fickle(), max_num_seqs=1)
    with pytest.raises(EngineDeadError, match="no children"):
        await (await engine.generate("p", SamplingParams(n=3, max_tokens=4))).results()
    await engine.stop()

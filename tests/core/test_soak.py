"""Thousands of mixed requests leave nothing behind."""

import asyncio
import gc
import random

from corelm_fcfs import Fair, FairSettings
from helpers import expected_text, start_engine

from corelm.api import (
    BeamSearch,
    InvalidRequestError,
    QueueFullError,
    RequestFailedError,
    RequestOptions,
    SamplingParams,
    StepResult,
)
from corelm.testing import FakeExecutor

REQUESTS = 10_000
CLIENTS = 40


class Unlucky(FakeExecutor):
    """One sequence in a thousand slices fails alone."""

    def __init__(self, **options):
        super().__init__(**options)
        self.draw = random.Random(5)

    def execute(self, plan):
        result = super().execute(plan)
        unlucky = [item.seq_id for item in plan.slices if self.draw.random() < 0.001]
        token_ids = [
            [] if item.seq_id in unlucky else tokens for item, tokens in zip(plan.slices, result.token_ids, strict=True)
        ]
        return StepResult(
            step_id=plan.step_id,
            token_ids=token_ids,
            logprobs=result.logprobs,
            prompt_logprobs=result.prompt_logprobs,
            errors=dict.fromkeys(unlucky, "bad luck"),
        )


class Crowd:
    """Clients that send one request after another, of every kind, and sometimes leave."""

    def __init__(self, engine):
        self.engine = engine
        self.draw = random.Random(11)
        self.left = REQUESTS
        self.ends = {"finished": 0, "bad luck": 0, "left": 0, "refused": 0, "full": 0}
        self.objects = []

    async def client(self):
        while self.left:
            self.left -= 1
            if self.left % (REQUESTS // 4) == 0:
                gc.collect()
                self.objects.append(len(gc.get_objects()))
            try:
                await self.request(self.draw)
            except InvalidRequestError:
                self.ends["refused"] += 1
            except RequestFailedError as error:
                self.ends[str(error)] += 1
            except QueueFullError:
                self.ends["full"] += 1
                await asyncio.sleep(0)

    async def request(self, draw):
        prompt = draw.choice(["one", "a longer beginning ", "", "x" * draw.randint(1, 60)])
        kind = draw.choice(["plain", "plain", "plain", "group", "best", "beam"])
        extra = {
            "plain": {},
            "group": {"n": 3},
            "best": {"best_of": 2},
            "beam": {"beam": BeamSearch(width=2)},
        }[kind]
        count = draw.randint(1, 8)
        params = SamplingParams(seed=3, max_tokens=count, ignore_eos=True, **extra)
        options = RequestOptions(tenant=draw.choice("abc"), priority=draw.randint(-1, 1))
        stream = await self.engine.generate(prompt, params, options=options)
        if draw.random() < 0.1:
            async for _ in stream:
                if draw.random() < 0.5:
                    break
            self.ends["left"] += 1
            return
        outputs = await stream.results()
        if kind in ("plain", "group"):
            assert [output.text for output in outputs] == [expected_text(prompt, count, 3 + i) for i in range(params.n)]
        self.ends["finished"] += 1


async def test_ten_thousand_mixed_requests_leave_nothing_behind():
    executor = Unlucky(num_blocks=90, num_swap_blocks=30, pipeline_depth=2)
    engine = await start_engine(executor, policy=Fair(FairSettings()), max_waiting=30)
    tasks = len(asyncio.all_tasks())
    crowd = Crowd(engine)
    await asyncio.gather(*(crowd.client() for _ in range(CLIENTS)))
    assert sum(crowd.ends.values()) == REQUESTS
    assert all(crowd.ends.values()), crowd.ends
    while engine.stats().running or engine.stats().waiting:  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)
    stats = engine.stats()
    assert stats.free_blocks == stats.total_blocks
    assert stats.preemptions > 0
    core = engine._engine
    core.check_integrity()
    assert not core.has_work
    assert not core._owner
    assert core._scheduler.memory.swap_pool.num_free == 30
    tracker = engine._tracker
    assert [*tracker._streams, *tracker._queued, *tracker._new] == []
    assert len(asyncio.all_tasks()) == tasks
    first, *_, last = crowd.objects
    assert last < first * 1.05, crowd.objects
    stream = await engine.generate("one", SamplingParams(max_tokens=8, temperature=0, ignore_eos=True))
    assert (await stream.result()).text == expected_text("one")
    await engine.stop()

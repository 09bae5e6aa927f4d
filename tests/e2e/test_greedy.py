"""In float32, greedy tokens equal transformers', however a prompt is batched, chunked, preempted or streamed."""

import asyncio
import time

import pytest
from corelm_fcfs import FCFS
from e2e_texts import TEXT

from corelm import LLM, AsyncEngine, SamplingParams
from corelm.api import StepPlan
from corelm.engine.engine import Engine
from corelm.scheduler.guard import PolicyGuard
from corelm.scheduler.memory import KVMemory
from corelm.scheduler.scheduler import Scheduler

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

LENGTHS = [1, 2, 3, 5, 8, 13, 15, 16, 17, 21, 31, 32, 33, 64, 100, 128, 200, 300, 450, 600]
NEW = 12
GREEDY = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)


@pytest.fixture(scope="module")
def prompts(reference):
    tokenizer, _ = reference
    tokens = tokenizer(TEXT)["input_ids"]
    assert len(tokens) > 620
    return [tokens[i : i + length] for i, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def expected(reference, prompts):
    import torch

    _, model = reference
    answers = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=NEW,
                min_new_tokens=NEW,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        answers.append(output[0, len(prompt) :].tolist())
    return answers


@pytest.fixture(scope="module")
def llm():
    with LLM(
        dtype="float32", kv_cache_tokens=8192, swap_tokens=2048, max_num_batched_tokens=2048, progress=False
    ) as llm:
        yield llm


@pytest.fixture
def engine(llm):
    """Makes engines with their own scheduler on the executor that is loaded."""
    loaded = llm._engine

    def make(budget=2048, num_blocks=loaded.info.num_blocks, prefix_cache=False, num_swap_blocks=0):
        # The engine before this one told the executor of its last sequences' end in no step.
        loaded._executor.execute(StepPlan(step_id=0, released=tuple(range(10_000))))
        memory = KVMemory(
            num_blocks=num_blocks,
            block_size=loaded.info.block_size,
            num_swap_blocks=num_swap_blocks,
            prefix_cache=prefix_cache,
        )
        scheduler = Scheduler(
            PolicyGuard(FCFS(), clock=time.monotonic),
            memory,
            max_num_seqs=64,
            max_num_batched_tokens=budget,
            can_fork=True,
        )
        return Engine(
            model_name="demo",
            executor=loaded._executor,
            info=loaded.info,
            scheduler=scheduler,
            intake=loaded.intake,
        )

    return make


def run(engine, prompts, params=GREEDY):
    """Token ids of each prompt, or of each choice if there are several."""
    requests = [engine.intake.prepare(p, params, request_id=str(i), arrival=float(i)) for i, p in enumerate(prompts)]
    tokens = {request.number: {} for request in requests}
    for request in requests:
        engine.add(request)
    while engine.has_work:
        for number, output in engine.step():
            tokens[number].setdefault(output.index, []).extend(output.token_ids)
        engine.check_integrity()
    if params.n == 1:
        return [choices[0] for choices in tokens.values()]
    return [[choices[index] for index in range(params.n)] for choices in tokens.values()]


def test_each_alone(llm, prompts, expected):
    assert [list(llm.generate(prompt, GREEDY)[0].token_ids) for prompt in prompts] == expected


@pytest.mark.parametrize("budget", [7, 64, 2048])
def test_all_at_once_in_chunks(engine, prompts, expected, budget):
    assert run(engine(budget), prompts) == expected


def test_preempted(engine, prompts, expected):
    small = engine(num_blocks=42)
    assert run(small, prompts) == expected
    assert small.snapshot().preemptions > 0


def test_swapped(engine, prompts, expected):
    small = engine(num_blocks=42, num_swap_blocks=100)
    assert run(small, prompts) == expected
    assert small._scheduler.swaps > 0


@pytest.mark.parametrize("num_blocks", [512, 44])
def test_choices_that_share_their_prompt(engine, prompts, num_blocks):
    """Each choice is what a request of its own with its seed would be."""
    params = SamplingParams(n=4, seed=100, max_tokens=NEW, ignore_eos=True)
    some = prompts[5:17:2]
    alone = [
        run(engine(), some, SamplingParams(seed=100 + index, max_tokens=NEW, ignore_eos=True)) for index in range(4)
    ]
    assert run(engine(num_blocks=num_blocks), some, params) == [list(choices) for choices in zip(*alone, strict=True)]


def test_from_the_prefix_cache(engine, prompts, expected):
    warm = engine(prefix_cache=True)
    shorter = SamplingParams(temperature=0, max_tokens=NEW - 5, ignore_eos=True)
    assert run(warm, prompts) == expected
    assert run(warm, prompts) == expected
    assert run(warm, [prompt + answer[:5] for prompt, answer in zip(prompts, expected, strict=True)], shorter) == [
        answer[5:] for answer in expected
    ]
    hit = warm.intake.prepare(prompts[-1], GREEDY, request_id="hit", arrival=0.0)
    warm.add(hit)
    while warm.has_work:
        (_, output), *_ = warm.step()
    assert output.cached_tokens == (len(prompts[-1]) - 1) // 16 * 16


async def test_streamed(engine, prompts, expected):
    server = AsyncEngine(lambda progress: engine())
    await server.start()

    async def stream(prompt):
        return [token async for output in await server.generate(prompt, GREEDY) for token in output.token_ids]

    assert await asyncio.gather(*map(stream, prompts)) == expected
    stats = server.stats()
    assert (stats.running, stats.waiting, stats.free_blocks) == (0, 0, stats.total_blocks)

"""Sharing what was computed: invisible but for the work it saves."""

import msgspec
import pytest
from helpers import expected_text, greedy, make_engine

from corelm.api import RequestFailedError, RequestOptions, SchedulingPolicy
from corelm.scheduler.prefix_cache import PrefixCache
from corelm.testing import FakeExecutor

BLOCK = 4


def ask(engine, prompt, count=6, **options):
    request = engine.intake.prepare(
        prompt, greedy(max_tokens=count), request_id="r", arrival=0.0, options=RequestOptions(**options)
    )
    engine.add(request)
    text = ""
    while engine.has_work:
        for _, output in engine.step():
            text += output.text
            cached = output.cached_tokens
        engine.check_integrity()
    return text, cached


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1, 30])
def test_the_same_prompt_again_gives_the_same_text(length):
    engine, off = make_engine(), make_engine(prefix_cache=False)
    prompt = "abcdefghijklmnopqrstuvwxyz0123456789"[:length]
    cold = ask(engine, prompt)
    assert cold == (expected_text(prompt, 6), 0)
    whole_blocks = (length - 1) // BLOCK * BLOCK
    for _ in range(3):
        assert ask(engine, prompt) == (cold[0], whole_blocks)
        assert ask(off, prompt) == cold


def test_prompts_that_diverge_inside_a_block_share_the_blocks_before():
    engine = make_engine()
    ask(engine, "abcdefghijkl")
    assert ask(engine, "abcdefXhijkl") == (expected_text("abcdefXhijkl", 6), BLOCK)
    assert ask(engine, "Xbcdefghijkl") == (expected_text("Xbcdefghijkl", 6), 0)


def test_a_follow_up_finds_the_answer_too():
    engine = make_engine()
    text, _ = ask(engine, "question", 8)
    assert ask(engine, "question" + text + "?")[1] == (8 + 8 - 1) // BLOCK * BLOCK


def test_sequences_share_blocks_while_both_run():
    engine = make_engine(FakeExecutor(num_blocks=16))
    prompt = "x" * 24
    ask(engine, prompt)
    requests = [
        engine.intake.prepare(prompt + str(i), greedy(max_tokens=4), request_id=str(i), arrival=0.0) for i in range(4)
    ]
    for request in requests:
        engine.add(request)
    texts = dict.fromkeys((request.number for request in requests), "")
    engine.step()
    assert engine.snapshot().running == 4  # each alone would take 7 of the 16 blocks
    while engine.has_work:
        engine.check_integrity()
        for seq_id, output in engine.step():
            texts[seq_id] += output.text
    assert engine.snapshot().preemptions == 0
    first = [expected_text(prompt + str(i), 4) for i in range(4)]
    assert [text[-3:] for text in texts.values()] == [text[-3:] for text in first]


def test_a_preempted_sequence_finds_its_own_blocks():
    plans = []
    engine = make_engine(FakeExecutor(num_blocks=12, on_step=plans.append))
    requests = [
        engine.intake.prepare(f"prompt {i} " * 2, greedy(max_tokens=12), request_id=str(i), arrival=float(i))
        for i in range(3)
    ]
    for request in requests:
        engine.add(request)
    while engine.has_work:
        engine.step()
        engine.check_integrity()
    assert engine.snapshot().preemptions > 0
    resumed = {start.seq_id for plan in plans for start in plan.started if len(start.token_ids) > start.prompt_len}
    starts = [item.start for plan in plans for item in plan.slices if item.seq_id in resumed and item.num_tokens > 1]
    assert any(start > 0 for start in starts)


def test_hashes_depend_on_everything_before():
    cache = PrefixCache(2)

    def hashes(tokens):
        found = []
        cache.extend(found, tokens, len(tokens))
        return found

    a, b = hashes([1, 2, 3, 4, 5]), hashes([9, 2, 3, 4])
    assert len(a) == 2
    assert a[1] != b[1]
    assert hashes([1, 2, 3, 4]) == a


def test_blocks_of_a_sequence_that_failed_are_not_shared():
    """Whatever it computed before may be wrong already."""

    class Unlucky(FakeExecutor):
        def execute(self, plan):
            result = super().execute(plan)
            failed = [item.seq_id for item in plan.slices if plan.step_id == 3]
            return msgspec.structs.replace(result, errors=dict.fromkeys(failed, "not finite"))

    engine = make_engine(Unlucky(), max_num_batched_tokens=8)
    engine.add(engine.intake.prepare("the same long beginning", greedy(), request_id="r", arrival=0.0))
    while engine.has_work:
        engine.step()
        engine.check_integrity()
    assert ask(engine, "the same long beginning")[1] == 0


@pytest.mark.parametrize("depth", [2, 3])
def test_not_even_if_it_lost_its_blocks_while_the_failing_step_ran(depth):
    """The result comes when the sequence waits again, or runs again elsewhere."""

    class Unlucky(FakeExecutor):
        def execute(self, plan):
            result = super().execute(plan)
            failed = [item.seq_id for item in plan.slices if item.seq_id == 2 and plan.step_id == 12]
            return msgspec.structs.replace(result, errors=dict.fromkeys(failed, "not finite"))

    class LastGivesWay(SchedulingPolicy):
        def victim(self, running, now):
            return running[-1].request_id

    prompts = ["first prompt ", "second one ", "a third "]
    for num_blocks in range(12, 24):
        engine = make_engine(Unlucky(num_blocks=num_blocks, pipeline_depth=depth), LastGivesWay())
        for index, prompt in enumerate(prompts):
            params = greedy(max_tokens=14)
            engine.add(engine.intake.prepare(prompt, params, request_id=str(index), arrival=float(index)))
        failed = False
        while engine.has_work:
            failed = any(isinstance(emission, RequestFailedError) for _, emission in engine.step()) or failed
            engine.check_integrity()
        if failed:
            assert ask(engine, prompts[1])[1] == 0


def test_salts_keep_prompts_apart():
    engine = make_engine()
    prompt = "x" * 20
    assert ask(engine, prompt, cache_salt="a")[1] == 0
    assert ask(engine, prompt, cache_salt="b")[1] == 0
    assert ask(engine, prompt)[1] == 0
    assert ask(engine, prompt, cache_salt="a")[1] == 16


def test_who_opts_out_neither_uses_the_cache_nor_fills_it():
    engine = make_engine()
    prompt = "x" * 20
    assert ask(engine, prompt, prefix_cache=False)[1] == 0
    assert ask(engine, prompt)[1] == 0
    assert ask(engine, prompt, prefix_cache=False)[1] == 0
    assert ask(engine, prompt)[1] == 16


def test_the_probe_of_a_view_tells_what_is_cached():
    engine = make_engine()
    ask(engine, "x" * 20)
    request = engine.intake.prepare("x" * 20, greedy(), request_id="r", arrival=0.0)
    engine.add(request)
    assert request.first.view.cached_prefix_tokens == 16
    assert request.first.block_ids == []

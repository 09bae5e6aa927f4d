"""Sharing what was computed: invisible but for the work it saves."""

import msgspec
import pytest
from helpers import expected_text, greedy, make_engine

from corelm.scheduler.prefix_cache import PrefixCache
from corelm.testing import FakeExecutor

BLOCK = 4


def ask(engine, prompt, count=6):
    request = engine.intake.prepare(prompt, greedy(max_tokens=count), request_id="r", arrival=0.0)
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

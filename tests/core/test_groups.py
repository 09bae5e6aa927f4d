"""Requests with several sequences: n, best_of, beam search, and what they share."""

import pytest
from corelm_fcfs import Priority
from helpers import expected_text, greedy, make_engine

from corelm.api import BeamSearch, InvalidRequestError, RequestOptions, SamplingParams
from corelm.engine.streams import merge
from corelm.testing import FakeExecutor, fake_continuation, fake_distribution

PROMPT = "the beginning that they share"


def generate(engine, *requests):
    """Run to the end; for each request, its choices by index."""
    parts = {}
    for number, (prompt, params, options) in enumerate(requests):
        request = engine.intake.prepare(prompt, params, request_id=str(number), arrival=float(number), options=options)
        engine.add(request)
        parts[request.number] = {}
    for _ in range(20_000):
        if not engine.has_work:
            break
        for number, output in engine.step():
            parts[number].setdefault(output.index, []).append(output)
        engine.check_integrity()
    assert not engine.has_work
    snapshot = engine.snapshot()
    assert snapshot.free_blocks == snapshot.total_blocks
    return [[merge(choices[index]) for index in sorted(choices)] for choices in parts.values()]


def one(engine, params, prompt=PROMPT):
    return generate(engine, (prompt, params, RequestOptions()))[0]


def sampled(count, **values):
    return SamplingParams(**{"n": count, "seed": 7, "max_tokens": 12, "ignore_eos": True, **values})


def solo(seed, count=12, prompt=PROMPT):
    return expected_text(prompt, count, seed)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_each_token_comes_with_its_logprobs_once_while_a_stop_string_holds_its_text_back(length, n):
    whole = solo(7)
    for start in range(len(whole) - length):
        stop = whole[start : start + length]
        output = one(make_engine(), sampled(n, stop=(stop,), logprobs=1))[0]
        assert output.text == whole[: whole.index(stop)]
        assert output.completion_tokens == len(output.token_ids) == len(output.logprobs)
        assert tuple(entry.token_id for entry in output.logprobs) == output.token_ids


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("block_size", [1, 3, 4, 29, 30, 64])
def test_choices_draw_with_their_own_seed_and_share_the_prompt(block_size, depth):
    plans = []
    executor = FakeExecutor(num_blocks=400, block_size=block_size, pipeline_depth=depth, on_step=plans.append)
    outputs = one(make_engine(executor), sampled(4))
    assert [output.text for output in outputs] == [solo(7 + i) for i in range(4)]
    computed = sum(item.num_tokens for plan in plans for item in plan.slices if item.start < len(PROMPT))
    assert computed == len(PROMPT) + 3  # each child computes the last token of the prompt itself
    assert {output.finish_reason for output in outputs} == {"length"}


def test_a_child_writes_to_a_copy_of_the_last_block_only():
    plans = []
    executor = FakeExecutor(num_blocks=64, block_size=8, on_step=plans.append)
    one(make_engine(executor), sampled(3))
    copies = [pair for plan in plans for pair in plan.copies]
    assert len(copies) == 2
    assert len({source for source, _ in copies}) == 1


@pytest.mark.parametrize("missing", ["copy_blocks", "prefix_cache"])
def test_an_executor_that_cannot_fork_computes_the_prompt_again(missing):
    able = frozenset({"prefix_cache", "copy_blocks", "logprobs"}) - {missing}
    executor = FakeExecutor(capabilities=able)
    engine = make_engine(executor, prefix_cache=missing != "prefix_cache")
    assert [output.text for output in one(engine, sampled(3))] == [solo(7 + i) for i in range(3)]


@pytest.mark.parametrize("swap", [0, 6, 64])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_small_pool_gives_the_same_choices(swap, depth):
    executor = FakeExecutor(num_blocks=14, num_swap_blocks=swap, pipeline_depth=depth)
    engine = make_engine(executor)
    outputs = one(engine, sampled(5, max_tokens=24))
    assert engine.snapshot().preemptions > 0
    assert [output.text for output in outputs] == [solo(7 + i, 24) for i in range(5)]


def test_more_choices_than_sequences_may_run():
    engine = make_engine(max_num_seqs=2)
    assert [output.text for output in one(engine, sampled(7))] == [solo(7 + i) for i in range(7)]


def test_groups_of_mixed_priorities_all_finish():
    engine = make_engine(FakeExecutor(num_blocks=24), Priority())
    requests = [(PROMPT, sampled(4), RequestOptions(priority=p)) for p in (0, 0, -1, 5)]
    for outputs in generate(engine, *requests):
        assert [output.text for output in outputs] == [solo(7 + i) for i in range(4)]


def test_aborting_a_group_frees_all_of_it():
    engine = make_engine()
    request = engine.intake.prepare(PROMPT, sampled(4), request_id="r", arrival=0.0)
    engine.add(request)
    engine.step()
    engine.step()
    engine.abort([request.number])
    engine.check_integrity()
    assert not engine.has_work
    assert engine.snapshot().free_blocks == engine.snapshot().total_blocks


def test_best_of_returns_the_most_probable_choices():
    outputs = one(make_engine(), sampled(2, best_of=6))
    every = one(make_engine(), sampled(6, logprobs=0))
    ranked = sorted(every, key=lambda output: output.cumulative_logprob, reverse=True)
    assert [output.text for output in outputs] == [output.text for output in ranked[:2]]
    assert [output.index for output in outputs] == [0, 1]
    assert outputs[0].logprobs is None


def test_logprobs_belong_to_the_tokens():
    (output,) = one(make_engine(), greedy(logprobs=3))
    assert tuple(entry.token_id for entry in output.logprobs) == output.token_ids
    context = list(PROMPT.encode())
    for entry in output.logprobs:
        best = fake_distribution(context)[:3]
        assert list(zip(entry.top_ids, entry.top_logprobs, strict=True)) == best
        assert (entry.rank, entry.logprob) == (1, best[0][1])
        context.append(entry.token_id)
    assert output.cumulative_logprob == pytest.approx(sum(entry.logprob for entry in output.logprobs))


@pytest.mark.parametrize("budget", [1, 7, 64])
@pytest.mark.parametrize("n", [1, 3])
def test_prompt_logprobs_are_whole_for_any_chunks_and_with_a_warm_cache(budget, n):
    engine = make_engine(FakeExecutor(), max_num_batched_tokens=budget)
    for _ in range(2):
        outputs = one(engine, sampled(n, prompt_logprobs=2))
        for output in outputs:
            first, *rest = output.prompt_logprobs
            assert first is None
            assert [entry.token_id for entry in rest] == list(PROMPT.encode())[1:]


@pytest.mark.parametrize("n", [1, 2])
def test_no_tokens_at_all_only_reads_the_prompt(n):
    outputs = one(make_engine(), sampled(n, max_tokens=0, prompt_logprobs=0))
    assert [(o.text, o.token_ids, o.finish_reason, o.completion_tokens) for o in outputs] == [("", (), "length", 0)] * n
    assert len(outputs[0].prompt_logprobs) == len(PROMPT)


def beam_search(tokens, beam, count):
    """A plain reading of the rules, without sequences or blocks."""
    beams, done = [(0.0, [])], []
    for length in range(1, count + 1):
        every = [
            (total + logprob, [*output, token])
            for total, output in beams
            for token, logprob in fake_distribution([*tokens, *output])
        ]
        every.sort(key=lambda item: item[0], reverse=True)
        every = every[: 2 * beam.width]
        if length == count:
            done += [(total / length**beam.length_penalty, output) for total, output in every[: beam.width]]
        beams = every[: beam.width]
    done.sort(key=lambda item: item[0], reverse=True)
    return [bytes(output).decode() for _, output in done]


@pytest.mark.parametrize("num_blocks", [10, 14, 64])
@pytest.mark.parametrize(("swap", "depth"), [(0, 1), (16, 1), (0, 2), (16, 2)])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_beam_search_follows_its_rules_however_little_memory_there_is(width, swap, depth, num_blocks):
    beam = BeamSearch(width=width, length_penalty=0.5)
    executor = FakeExecutor(num_blocks=num_blocks, num_swap_blocks=swap, pipeline_depth=depth)
    engine = make_engine(executor, max_num_seqs=3)
    params = SamplingParams(beam=beam, n=width, max_tokens=9, ignore_eos=True)
    others = [("x" * 9, greedy(max_tokens=15), RequestOptions()) for _ in range(2)]
    results, *rest = generate(engine, (PROMPT[:20], params, RequestOptions()), *others)
    assert [output.text for output in results] == beam_search(list(PROMPT[:20].encode()), beam, 9)
    assert all(outputs[0].text == expected_text("x" * 9, 15) for outputs in rest)


def test_a_stop_token_finishes_a_beam():
    beam = BeamSearch(width=2, early_stopping=True)
    stop = fake_continuation(list(PROMPT.encode()), 3)[2]
    outputs = one(make_engine(), SamplingParams(beam=beam, n=2, max_tokens=20, stop_token_ids=(stop,)))
    assert outputs[0].finish_reason == "stop"
    assert outputs[0].token_ids[-1] == stop


def test_a_beam_that_the_executor_cannot_compute_is_refused():
    engine = make_engine(FakeExecutor(capabilities=frozenset()))
    for values in ({"beam": BeamSearch(width=2)}, {"logprobs": 1}, {"n": 1, "best_of": 2}, {"min_tokens": 1}):
        with pytest.raises(InvalidRequestError, match="not supported"):
            engine.intake.prepare("p", greedy(**values), request_id="r", arrival=0.0)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("length", [8, 9, 16, 17, 24])
def test_no_tokens_at_all_however_the_prompt_is_cut(n, length, depth):
    engine = make_engine(FakeExecutor(pipeline_depth=depth), max_num_batched_tokens=8)
    outputs = one(engine, sampled(n, max_tokens=0), "x" * length)
    assert [(o.token_ids, o.finish_reason, o.completion_tokens) for o in outputs] == [((), "length", 0)] * n


def test_seeds_wrap_around():
    outputs = one(make_engine(), sampled(2, seed=2**63 - 1))
    assert [output.text for output in outputs] == [solo(2**63 - 1), solo(-(2**63))]


def test_best_of_ranks_by_the_mean_and_the_lower_index_wins_ties():
    """One choice stops early: its sum is the highest, its mean need not be."""
    every = one(make_engine(), sampled(6, logprobs=0))
    stop = every[3].text[2]
    params = {"stop": (stop,), "include_stop_str_in_output": True}
    cut = one(make_engine(), sampled(6, logprobs=0, **params))
    assert len({output.completion_tokens for output in cut}) > 1
    ranked = sorted(cut, key=lambda output: output.cumulative_logprob / output.completion_tokens, reverse=True)
    best = one(make_engine(), sampled(3, best_of=6, **params))
    assert [output.text for output in best] == [output.text for output in ranked[:3]]
    same = one(make_engine(), sampled(2, best_of=4, temperature=0.0))
    assert [output.index for output in same] == [0, 1]


def test_prompt_tokens_of_a_group_count_once():
    engine = make_engine()
    one(engine, sampled(4))
    assert engine.snapshot().prompt_tokens == len(PROMPT)


def test_an_executor_may_sample_several_tokens_at_a_time():
    class Double(FakeExecutor):
        """Looks one token ahead."""

        def _compute(self, item, result):
            tokens = super()._compute(item, result)
            if tokens:
                held = self._held[item.seq_id]
                tokens.append(fake_continuation(held.tokens, 1, held.seed)[0])
                held.tokens.append(tokens[-1])
            return tokens

    engine = make_engine(Double(num_blocks=14), prefix_cache=False)
    others = [(f"other {i}", greedy(max_tokens=15), RequestOptions()) for i in range(4)]
    results = generate(engine, *others)
    assert [outputs[0].text for outputs in results] == [expected_text(f"other {i}", 15) for i in range(4)]
    assert engine.snapshot().preemptions > 0


@pytest.mark.parametrize(("kept", "wanted"), [(0, "0 log-probabilities for 1 tokens"), (2, "2 log-prob")])
def test_wrong_numbers_of_logprobs_fail_the_request_alone(kept, wanted):
    class Sloppy(FakeExecutor):
        def execute(self, plan):
            result = super().execute(plan)
            for seq_id, entries in result.logprobs.items():
                result.logprobs[seq_id] = (entries * 2)[:kept]
            return result

    engine = make_engine(Sloppy())
    bad = engine.intake.prepare("a", greedy(logprobs=0), request_id="bad", arrival=0.0)
    good = engine.intake.prepare("b", greedy(), request_id="good", arrival=0.0)
    engine.add(bad)
    engine.add(good)
    emissions = dict(engine.step())
    assert wanted in str(emissions[bad.number])
    engine.check_integrity()
    while engine.has_work:
        engine.step()


@pytest.mark.parametrize("change", [lambda entries: entries[1:], lambda entries: []])
def test_prompt_logprobs_that_are_left_out_fail_the_request(change):
    class Sloppy(FakeExecutor):
        def execute(self, plan):
            result = super().execute(plan)
            for seq_id, entries in result.prompt_logprobs.items():
                result.prompt_logprobs[seq_id] = change(entries)
            return result

    engine = make_engine(Sloppy())
    request = engine.intake.prepare("abcd", greedy(prompt_logprobs=0), request_id="bad", arrival=0.0)
    engine.add(request)
    ((_, error),) = engine.step()
    assert "left out log-probabilities" in str(error)
    assert not engine.has_work


def test_a_beam_that_cannot_be_told_leaves_nothing(monkeypatch):
    engine = make_engine()
    monkeypatch.setattr(type(engine.intake.tokenizer), "decoder", lambda self, **options: 1 / 0)
    params = SamplingParams(beam=BeamSearch(width=2), max_tokens=2, ignore_eos=True)
    engine.add(engine.intake.prepare("abcd", params, request_id="bad", arrival=0.0))
    emissions = [emission for _ in range(4) for emission in engine.step()]
    assert "could not be made" in str(emissions[-1][1])
    engine.check_integrity()
    assert not engine.has_work
    assert engine.snapshot().free_blocks == engine.snapshot().total_blocks

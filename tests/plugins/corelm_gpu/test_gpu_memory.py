"""Memory of the device: what is left for the cache, and steps for which there is not enough."""

import corelm_gpu.memory
import pytest
import torch
from corelm_gpu.largest_step import largest_step
from corelm_gpu.memory import left_for_cache
from corelm_gpu.steps import NO_MEMORY
from gpu_tiny import make_executor

from corelm import LLM
from corelm.api import ModelLoadError, SamplingParams, SequenceSlice, SequenceStart, StepPlan

GIB = 2**30


class FakeCuda:
    """What `torch.cuda` says of a device of 80 GiB, on which others hold 4 and the weights take 20."""

    def __init__(self, monkeypatch):
        self.peak = self.reserved = 20 * GIB
        names = ("memory_allocated", "max_memory_allocated", "memory_reserved", "mem_get_info", "empty_cache")
        for name in (*names, "reset_peak_memory_stats"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))

    def step(self):
        """A step takes 6 GiB."""
        self.peak = self.reserved = 26 * GIB

    def memory_allocated(self, device):
        return 20 * GIB

    def max_memory_allocated(self, device):
        return self.peak

    def reset_peak_memory_stats(self, device):
        self.peak = 20 * GIB

    def memory_reserved(self, device):
        return self.reserved

    def mem_get_info(self, device):
        return 76 * GIB - self.reserved, 80 * GIB

    def empty_cache(self):
        self.reserved = 20 * GIB


@pytest.mark.parametrize(("fraction", "left"), [(0.9, 72 - 26 - 1), (1.0, 76 - 26 - 1), (0.5, 40 - 26 - 1)])
def test_the_cache_gets_what_a_step_and_its_graphs_leave(monkeypatch, fraction, left):
    cuda = FakeCuda(monkeypatch)
    assert left_for_cache(torch.device("cuda"), fraction, step=cuda.step, graphs=lambda: GIB) == left * GIB


def test_a_model_that_leaves_no_room_for_a_step_is_refused(monkeypatch):
    FakeCuda(monkeypatch)

    def step():
        raise torch.OutOfMemoryError("tried to allocate 64 GiB")

    with pytest.raises(ModelLoadError, match=r"80.00 GiB .* 20.00 GiB.*--max-num-batched-tokens.*64 GiB"):
        left_for_cache(torch.device("cuda"), 0.9, step=step, graphs=lambda: 0)


def test_a_cache_that_does_not_fit_is_refused_with_numbers(tiny_llama, monkeypatch):
    monkeypatch.setattr(corelm_gpu.memory, "INTERPRETER_BYTES", 100_000)
    with pytest.raises(ModelLoadError, match=r"a KV cache of 4096 tokens"):
        make_executor(tiny_llama, kv_cache_tokens=4096).load(lambda fraction, text: None)


@pytest.mark.parametrize(("sequences", "tokens", "lengths"), [(4, 64, [16] * 4), (8, 3, [1] * 3), (1, 999, [64])])
def test_the_largest_step_has_as_much_as_there_may_be(tiny_llama, sequences, tokens, lengths):
    executor = make_executor(tiny_llama, max_num_seqs=sequences, max_num_batched_tokens=tokens)
    executor.load(lambda fraction, text: None)
    plan = largest_step(executor._context, 64, executor._config.vocab_size)
    assert [piece.num_tokens for piece in plan.slices] == lengths
    assert all(piece.sample for piece in plan.slices)
    executor._try_largest_step()


def test_a_step_cannot_have_more_logits_than_can_be_counted(tiny_llama):
    context = make_executor(tiny_llama, max_num_seqs=20_000, max_num_batched_tokens=20_000)._context
    assert len(largest_step(context, 64, 100_000).slices) == 20_000
    with pytest.raises(ModelLoadError, match="--max-num-seqs up to 10737"):
        largest_step(context, 64, 200_000)


@pytest.fixture
def short_of_memory(monkeypatch):
    """Steps of more than a number of tokens, or of a token, run out of memory."""
    from corelm_gpu.runner import Runner

    compute, limits = Runner.compute, {"tokens": 64, "token": -9}

    def limited(self, batch):
        if len(batch.token_ids) > limits["tokens"] or limits["token"] in batch.token_ids:
            raise torch.OutOfMemoryError("so much")
        sizes.append(len(batch.token_ids))
        return compute(self, batch)

    sizes: list[int] = []
    limits["sizes"] = sizes
    monkeypatch.setattr(Runner, "compute", limited)
    return limits


def run(executor, plans):
    """Results of plans, two of which are under way at a time."""
    handles, results = [], []
    for plan in plans:
        handles.append(executor.submit(plan))
        if len(handles) == 2:
            results.append(executor.collect(handles.pop(0)))
    return results + [executor.collect(handle) for handle in handles]


def plans(**sampling):
    """Two prompts, then two tokens for each."""
    prompts = {1: list(range(20, 43)), 2: [5, 6, 7]}
    params = SamplingParams(temperature=0.0, seed=0, **sampling)
    started = [SequenceStart(seq_id=n, token_ids=p, prompt_len=len(p), sampling=params) for n, p in prompts.items()]
    first = [
        SequenceSlice(seq_id=1, start=0, num_tokens=23, new_block_ids=(3, 1), sample=True),
        SequenceSlice(seq_id=2, start=0, num_tokens=3, new_block_ids=(2,), sample=True),
    ]
    yield StepPlan(step_id=1, started=tuple(started), slices=tuple(first))
    for step in (1, 2):
        slices = [
            SequenceSlice(seq_id=1, start=22 + step, num_tokens=1, sample=True),
            SequenceSlice(seq_id=2, start=2 + step, num_tokens=1, sample=True),
        ]
        yield StepPlan(step_id=1 + step, slices=tuple(slices))


@pytest.mark.parametrize("sampling", [{}, {"logprobs": 2, "prompt_logprobs": 1, "repetition_penalty": 1.3}])
def test_a_step_that_is_too_large_is_computed_in_parts(tiny_llama, short_of_memory, sampling):
    executor = make_executor(tiny_llama)
    executor.load(lambda fraction, text: None)
    expected = run(executor, plans(**sampling))
    short_of_memory["sizes"].clear()
    short_of_memory["tokens"] = 6
    executor.submit(StepPlan(step_id=9, released=(1, 2)))
    found = run(executor, plans(**sampling))
    assert short_of_memory["sizes"] == [5, 6, 6, 6, 3, 2, 2]
    assert [result.token_ids for result in found] == [result.token_ids for result in expected]
    for name in ("logprobs", "prompt_logprobs"):
        for one, other in zip(found, expected, strict=True):
            scores = [
                {seq_id: [(score.token_id, round(score.logprob, 4)) for score in each] for seq_id, each in got.items()}
                for got in (getattr(one, name), getattr(other, name))
            ]
            assert scores[0] == scores[1]
    assert not any(result.errors for result in found)


def test_a_request_for_which_there_is_no_memory_fails_alone(tiny_llama, short_of_memory):
    params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    with LLM(
        str(tiny_llama.path), executor="gpu", tokenizer="fake", dtype="float32", kv_cache_tokens=256, progress=False
    ) as llm:
        (expected,) = llm.generate([[1, 2, 3]], params)
        short_of_memory["token"] = 77
        with pytest.raises(Exception, match=NO_MEMORY):
            llm.generate([[77, 3]], params)
        short_of_memory["token"] = 78
        outputs = llm.generate([[1, 2, 3]], params)
        assert outputs[0].token_ids == expected.token_ids

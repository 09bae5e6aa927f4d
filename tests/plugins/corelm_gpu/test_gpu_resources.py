"""Memory that is given back, shared, and not there when it is asked for."""

import gc
import weakref
from contextlib import contextmanager

import corelm_gpu.executor
import corelm_gpu.kv_cache
import corelm_gpu.memory
import pytest
import torch
from corelm_gpu.decode_graphs import DecodeGraphs
from corelm_gpu.memory import free_memory
from corelm_gpu.runner import Runner
from gpu_kernels import DEVICE
from gpu_tiny import make_executor
from helpers import make_engine
from test_gpu_memory import GIB, FakeCuda, run
from triton import OutOfResources

from corelm.api import ModelLoadError, SamplingParams, SequenceSlice, SequenceStart, StepPlan


def loaded(model, **changes):
    executor = make_executor(model, **changes)
    executor.load(lambda fraction, text: None)
    return executor


def test_a_model_is_gone_after_a_shutdown_and_may_be_loaded_again(tiny_llama):
    executor = loaded(tiny_llama)
    runner = weakref.ref(executor._runner)
    gc.disable()
    try:
        executor.shutdown()
        assert runner() is None
    finally:
        gc.enable()
    executor.shutdown()
    executor.load(lambda fraction, text: None)
    plan = StepPlan(
        step_id=1,
        started=(SequenceStart(seq_id=1, token_ids=[3, 4], prompt_len=2, sampling=SamplingParams(seed=0)),),
        slices=(SequenceSlice(seq_id=1, start=0, num_tokens=2, new_block_ids=(0,), sample=True),),
    )
    assert len(executor.collect(executor.submit(plan)).token_ids[0]) == 1


def test_a_model_is_gone_after_a_shutdown_in_the_middle_of_a_step(tiny_llama):
    executor = make_executor(tiny_llama)
    engine = make_engine(executor)
    engine.add(engine.intake.prepare([3, 4, 5], SamplingParams(prompt_logprobs=0), request_id="a", arrival=0.0))
    assert engine.step() == []
    runner = weakref.ref(executor._runner)
    engine.shutdown()
    assert runner() is None


@pytest.mark.parametrize(
    ("place", "purpose"),
    [
        ((corelm_gpu.executor, "Runner"), "load the model"),
        ((corelm_gpu.executor, "KVCache"), "hold the KV cache"),
        ((DecodeGraphs, "capture"), "hold the KV cache and capture steps"),
    ],
)
def test_loading_without_enough_memory_says_so(tiny_llama, monkeypatch, place, purpose):
    def fail(*args, **options):
        if options.get("num_blocks") != 1:
            raise torch.OutOfMemoryError("tried to allocate 64 GiB")
        return cache(*args, **options)

    cache = corelm_gpu.executor.KVCache
    monkeypatch.setattr(*place, fail)
    monkeypatch.setattr(corelm_gpu.memory, "total_memory", lambda device: 80 * GIB)
    with pytest.raises(ModelLoadError, match=f"80.00 GiB .*not enough is left to {purpose}.*64 GiB"):
        loaded(tiny_llama)


def test_kernels_that_a_device_has_no_room_for_are_an_error_of_the_model(tiny_llama, monkeypatch):
    def fail(self, batch):
        raise OutOfResources(164352, 101376, "shared memory")

    executor = loaded(tiny_llama)
    monkeypatch.setattr(Runner, "compute", fail)
    with pytest.raises(ModelLoadError, match=r"--dtype float32; in bfloat16 .*164352"):
        executor._try_largest_step()


def test_swap_space_that_the_host_does_not_have_is_refused(tiny_llama):
    with pytest.raises(ModelLoadError, match=r"no 524288.00 GiB .*--swap-tokens"):
        loaded(tiny_llama, swap_tokens=2**42)


@pytest.mark.parametrize(("swap_tokens", "copies"), [(0, [(16, 16)]), (48, [(16, 16), (16, 3), (3, 16)])])
def test_kernels_that_copy_are_compiled_before_they_are_needed(tiny_llama, monkeypatch, swap_tokens, copies):
    def watched(source, target, pairs):
        blocks.append((source.shape[1], target.shape[1]))
        return copy_blocks(source, target, pairs)

    blocks, copy_blocks = [], corelm_gpu.kv_cache.copy_blocks
    monkeypatch.setattr(corelm_gpu.kv_cache, "copy_blocks", watched)
    loaded(tiny_llama, swap_tokens=swap_tokens)
    assert blocks == copies


def test_what_pytorch_keeps_for_later_counts_as_free(monkeypatch):
    cuda = FakeCuda(monkeypatch)
    cuda.step()
    assert free_memory(torch.device("cuda")) == 56 * GIB


class FakeGraph:
    """Replays nothing."""

    def replay(self):
        return


@contextmanager
def fake_capture(graph, *, pool, capture_error_mode):
    assert capture_error_mode == "thread_local"
    yield


def test_captured_steps_of_all_sizes_share_their_outputs(monkeypatch):
    """Each would keep its own from being used for anything else."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "graph", fake_capture)
    graphs = DecodeGraphs(
        lambda inputs: torch.full((len(inputs.token_ids), 7), len(inputs.token_ids) + 0.0, device=DEVICE),
        max_rows=9,
        max_blocks=2,
        block_size=16,
        kv_heads=1,
        device=DEVICE,
    )
    graphs._pool = "pool"
    graphs.capture(lambda fraction, text: None)
    outputs = {size: graphs._captured[size]() for size in graphs.sizes}
    assert {output.data_ptr() for output in outputs.values()} == {outputs[9].data_ptr()}
    assert outputs[9][:, 0].tolist() == [1, 2, 4, 4, 8, 8, 8, 8, 9]


def test_scores_of_a_prompt_are_computed_in_parts_where_memory_is_short(tiny_llama, monkeypatch):
    def step():
        executor.submit(StepPlan(step_id=1, released=(1,)))
        sampling = SamplingParams(seed=0, temperature=0.0, prompt_logprobs=2)
        prompt = list(range(40, 60))
        plan = StepPlan(
            step_id=2,
            started=(SequenceStart(seq_id=1, token_ids=prompt, prompt_len=20, sampling=sampling),),
            slices=(SequenceSlice(seq_id=1, start=0, num_tokens=20, new_block_ids=(0, 1), sample=True),),
        )
        (result,) = run(executor, [plan])
        assert not result.errors
        return [(score.token_id, round(score.logprob, 4)) for score in result.prompt_logprobs[1]]

    executor = loaded(tiny_llama)
    expected, sizes, head = step(), [], Runner._head

    def limited(self, hidden):
        if len(hidden) > 3:
            raise torch.OutOfMemoryError("so much")
        sizes.append(len(hidden))
        return head(self, hidden)

    monkeypatch.setattr(Runner, "_head", limited)
    assert step() == expected
    assert sum(sizes) == 20
    assert max(sizes) == 3

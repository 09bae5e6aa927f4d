"""What a step takes to the device, and which steps are captured ones."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from corelm_gpu.attention_plan import MAX_SPLITS, choose_splits
from corelm_gpu.decode_graphs import graph_sizes
from corelm_gpu.ops import GpuOps
from corelm_gpu.staging import Staging
from gpu_kernels import DEVICE
from gpu_tiny import make_executor

from corelm.api import SamplingParams, SequenceSlice, SequenceStart, StepPlan


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 100, 256, 257, 1000])
def test_sizes_of_captured_steps(most):
    sizes = graph_sizes(most)
    assert sizes[0] == 1
    assert sizes[-1] == most
    assert sizes == sorted(set(sizes))
    for rows in range(1, most + 1):
        size = min(size for size in sizes if size >= rows)
        assert size - rows < 8 or size - rows < rows / 4, "most of what a captured step computes is wanted"


@pytest.mark.parametrize("longest", [1, 511, 512, 5000, 10**6])
@pytest.mark.parametrize("programs", [1, 8, 500, 5000])
def test_contexts_are_shared_by_programs_while_there_are_few(longest, programs):
    splits = choose_splits(longest, programs)
    assert splits.bit_count() == 1
    assert 1 <= splits <= MAX_SPLITS
    assert splits == 1 or splits * programs <= 1024


def test_arrays_arrive_as_they_are_and_stay():
    staging = Staging(DEVICE)
    arrays = [np.array([[3, -1, 5]]), np.zeros(0, np.int64), np.arange(7), np.arange(2**31 - 2, 2**31)]
    sent = staging.send(arrays)
    for _ in range(20):
        staging.send([np.full(99, 8)])
    for array, tensor in zip(arrays, sent, strict=True):
        assert tensor.tolist() == array.tolist()
        assert tensor.data_ptr() % 16 == 0


def test_captured_steps_are_those_of_one_token_a_sequence(tiny_llama, monkeypatch):
    executor = make_executor(tiny_llama)
    executor.load(lambda fraction, text: None)
    graphs = executor._runner.graphs
    assert graphs.sizes == [1, 2, 4]
    captured = []
    run = graphs.run
    monkeypatch.setattr(
        graphs, "run", lambda batch, staging: captured.append(len(batch.lengths)) or run(batch, staging)
    )
    starts = [
        SequenceStart(
            seq_id=number,
            token_ids=[4, 5],
            prompt_len=2,
            sampling=SamplingParams(seed=0, prompt_logprobs=0 if number == 3 else None),
            embed=number == 4,
        )
        for number in range(1, 5)
    ]

    def step(step_id, *slices, started=()):
        pieces = [
            SequenceSlice(seq_id=seq_id, start=start, num_tokens=count, new_block_ids=blocks, sample=sample)
            for seq_id, start, count, blocks, sample in slices
        ]
        executor.collect(executor.submit(StepPlan(step_id=step_id, slices=tuple(pieces), started=tuple(started))))

    step(1, *[(number, 0, 1, (number,), False) for number in range(1, 5)], started=starts)
    assert captured == []
    step(2, (1, 1, 1, (), True), (2, 1, 1, (), True))
    assert captured == [2]
    step(3, (1, 2, 1, (), True), (2, 2, 1, (), True), (3, 1, 1, (), True))
    assert captured == [2, 3], "a last token of a prompt is like any other"
    step(4, (1, 3, 1, (), True), (4, 1, 1, (), False))
    assert captured == [2, 3], "an embedding is no logits"


@pytest.mark.parametrize(
    ("graphs", "decoding"), [(True, "captured, 3 batch sizes"), (False, "launched (gpu.graphs is off)")]
)
def test_the_banner_says_how_decoding_runs(tiny_llama, graphs, decoding):
    info = make_executor(tiny_llama, graphs=graphs).load(lambda fraction, text: None)
    assert info.details["decoding"] == decoding


def test_a_token_of_a_released_sequence_reaches_nobody(tiny_llama):
    """The sequence that got its row in the table has begun by the time that the token is known."""
    sampling = SamplingParams(seed=0, temperature=0.0, frequency_penalty=2.0, logprobs=0)
    prompts = {1: [70, 71, 72], 2: list(range(20, 28))}
    starts = {n: SequenceStart(seq_id=n, token_ids=p, prompt_len=len(p), sampling=sampling) for n, p in prompts.items()}
    plans = [
        StepPlan(
            step_id=1,
            started=(starts[1],),
            slices=(SequenceSlice(seq_id=1, start=0, num_tokens=3, new_block_ids=(0,), sample=True),),
        ),
        StepPlan(
            step_id=2,
            released=(1,),
            started=(starts[2],),
            slices=(SequenceSlice(seq_id=2, start=0, num_tokens=2, new_block_ids=(1,), sample=False),),
        ),
        StepPlan(step_id=3, slices=(SequenceSlice(seq_id=2, start=2, num_tokens=6, sample=True),)),
        StepPlan(step_id=4, slices=(SequenceSlice(seq_id=2, start=8, num_tokens=1, sample=True),)),
    ]
    alone, pipelined = (make_executor(tiny_llama) for _ in range(2))
    for executor in (alone, pipelined):
        executor.load(lambda fraction, text: None)
    results = [alone.collect(alone.submit(plan)) for plan in plans[1:]]
    handles = [pipelined.submit(plan) for plan in plans[:2]]
    row = pipelined._table._row_of[2]
    pipelined.collect(handles[0])
    assert pipelined._table._tokens[row, :8].tolist() == prompts[2]
    pipelined.collect(handles[1])
    assert [pipelined.collect(pipelined.submit(plan)) for plan in plans[2:]] == results[1:]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_arrays_of_a_step_begin_where_kernels_are_compiled_for(tiny_llama, monkeypatch, count):
    """Otherwise they would be compiled anew in the middle of serving."""
    executor = make_executor(tiny_llama)
    executor.load(lambda fraction, text: None)
    pointers, begin = [], GpuOps.begin

    def watched(self, inputs):
        chunks = inputs.plan.chunks or inputs.plan.decodes
        tensors = [getattr(part, each.name) for part in (inputs, chunks) for each in fields(part)]
        pointers.extend(tensor.data_ptr() % 16 for tensor in tensors if isinstance(tensor, torch.Tensor))
        begin(self, inputs)

    monkeypatch.setattr(GpuOps, "begin", watched)
    start = SequenceStart(seq_id=1, token_ids=[3] * 9, prompt_len=9, sampling=SamplingParams(seed=0))
    piece = SequenceSlice(seq_id=1, start=0, num_tokens=count, new_block_ids=(1,), sample=False)
    executor.submit(StepPlan(step_id=1, started=(start,), slices=(piece,)))
    assert len(pointers) >= 7
    assert set(pointers) == {0}

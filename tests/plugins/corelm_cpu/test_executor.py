"""The executor's contract: plans in, tokens out, refusals with reasons."""

import math
import subprocess
import sys

import pytest
import torch
from corelm_cpu.plugin import create
from corelm_cpu.settings import CpuSettings

from corelm.api import ExecutorContext, ModelLoadError

SAMPLED = {"temperature": 1.5, "top_p": 0.95, "seed": 11}


def test_info(drive):
    info = drive("llama", block_size=8, kv_cache_tokens=800, settings=CpuSettings(threads=2)).info
    assert (info.num_blocks, info.block_size, info.vocab_size, info.max_model_len) == (100, 8, 160, 512)
    assert (info.dtype, info.device) == ("float32", "cpu")
    assert info.details["threads"] == "2"
    edits = {"penalties", "token_masks", "logits_processors", "grammar"}
    assert info.capabilities == {"prefix_cache", "copy_blocks", "logprobs", "embeddings"} | edits
    assert (info.num_swap_blocks, info.pipeline_depth, info.embedding_size) == (0, 1, 72)


def test_swap_space(drive):
    info = drive("llama", block_size=8, swap_tokens=47).info
    assert info.num_swap_blocks == 5
    assert "swap space" in info.details


def test_without_kernels_dtype_is_bfloat16_where_the_cpu_has_it(drive):
    expected = "bfloat16" if torch.ops.mkldnn._is_mkldnn_bf16_supported() else "float32"
    settings = CpuSettings(threads=1, kernels="torch")
    assert drive("llama", dtype="auto", settings=settings).info.dtype == expected


def test_the_default_kv_cache_holds_every_sequence_at_its_longest(drive):
    info = drive("llama", kv_cache_tokens=None, max_num_seqs=2, max_model_len=100).info
    assert info.num_blocks == 2 * 7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "float16"}, "float16"),
        ({"max_model_len": 513}, "513.*512"),
        ({"kv_cache_tokens": 10**13}, "GiB.*GiB.*GiB"),
    ],
)
def test_refusals_to_load(drive, options, words):
    with pytest.raises(ModelLoadError, match=words):
        drive("llama", **options)


def test_progress_ends_at_one(tiny_model):
    context = ExecutorContext(
        model=tiny_model("llama").resolved, settings=None, max_num_seqs=1, max_num_batched_tokens=64, kv_cache_tokens=64
    )
    executor, seen = create(context), []
    executor.load(lambda fraction, what: seen.append(fraction))
    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (0.0, 1.0)
    executor.shutdown()
    executor.shutdown()


def test_shutdown_after_a_failed_load(tiny_model):
    context = ExecutorContext(
        model=tiny_model("llama").resolved, settings=None, dtype="float16", max_num_seqs=1, max_num_batched_tokens=64
    )
    executor = create(context)
    with pytest.raises(ModelLoadError):
        executor.load(lambda fraction, what: None)
    executor.shutdown()


def test_a_plan_without_slices(drive, prompt):
    driver = drive("llama")
    start = driver.start(prompt(5))
    assert driver.step(started=[start]).token_ids == []
    result = driver.step(driver.slice(start.seq_id, 0, 3, sample=False))
    assert result.token_ids == [[]]
    assert len(driver.step(driver.slice(start.seq_id, 3, 2)).token_ids[0]) == 1


def test_a_seeded_sequence_does_not_depend_on_its_neighbours(drive, prompt):
    alone = drive("llama").generate(prompt(11), tokens=15, **SAMPLED)[0]
    together = drive("llama").generate(prompt(40, 1), prompt(11), prompt(3, 2), tokens=15, **SAMPLED)[1]
    assert alone == together
    assert alone != drive("llama").generate(prompt(11), tokens=15, **SAMPLED | {"seed": 12})[0]


def test_a_preempted_sequence_goes_on_as_if_nothing_had_happened(drive, prompt):
    tokens = prompt(11)
    expected = drive("llama").generate(tokens, tokens=15, **SAMPLED)[0]
    driver = drive("llama")
    first = driver.start(tokens, **SAMPLED)
    known = tokens + driver.step(driver.slice(first.seq_id, 0, 11), started=[first]).token_ids[0]
    for position in range(11, 17):
        known += driver.step(driver.slice(first.seq_id, position, 1)).token_ids[0]
    again = driver.start(known, prompt_len=11, **SAMPLED)
    pieces = [driver.slice(again.seq_id, 0, 10, sample=False), driver.slice(again.seq_id, 10, len(known) - 10)]
    driver.step(pieces[0], started=[again], released=[first.seq_id])
    known += driver.step(pieces[1]).token_ids[0]
    while len(known) < 11 + 15:
        known += driver.step(driver.slice(again.seq_id, len(known) - 1, 1)).token_ids[0]
    assert known[11:] == expected


def test_a_sick_sequence_fails_alone_and_leaves_nothing_behind(drive_each, prompt):
    """Token 159 has NaNs for an embedding. The blocks it touched go to a healthy sequence afterwards."""
    healthy, sick = [[token % 150 for token in prompt(length)] for length in (20, 21)]
    sick[4] = 159
    driver = drive_each("even widths", kv_cache_tokens=64)
    expected = driver.generate(healthy, tokens=5)[0]
    driver.spoil(159, math.nan)
    starts = [driver.start(healthy), driver.start(sick)]
    slices = [driver.slice(start.seq_id, 0, len(start.token_ids)) for start in starts]
    result = driver.step(*slices, started=starts)
    assert result.token_ids == [expected[:1], []]
    assert list(result.errors) == [starts[1].seq_id]
    driver.step(released=[start.seq_id for start in starts])
    for _ in range(3):
        assert driver.generate(healthy, tokens=5)[0] == expected


def test_the_context_can_be_filled_to_the_last_token(drive, prompt):
    driver = drive("llama", max_model_len=50)
    start = driver.start(prompt(49))
    assert len(driver.step(driver.slice(start.seq_id, 0, 49), started=[start]).token_ids[0]) == 1
    assert len(driver.step(driver.slice(start.seq_id, 49, 1)).token_ids[0]) == 1


def test_registering_imports_nothing_heavy():
    code = "import sys, corelm_cpu.plugin; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)

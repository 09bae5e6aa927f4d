"""The executor with a model that the native kernels compute: conformance, blocks, failures, threads."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import transformers
from corelm_cpu.plugin import create
from corelm_cpu.settings import CpuSettings
from corelm_torch.step import NOT_FINITE
from levels import needs_kernels

from corelm.api import ResolvedModel, SequenceSlice
from corelm.testing import ExecutorConformance

pytestmark = needs_kernels
TASKS = Path("/proc/self/task")
needs_tasks = pytest.mark.skipif(not TASKS.exists(), reason="threads are counted in /proc")


@pytest.fixture(scope="session")
def calm_model(tiny_model, tmp_path_factory):
    """One with small weights, in which rounding errors do not grow from layer to layer."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(7)
    transformers.LlamaForCausalLM(tiny_model("llama").reference.config).save_pretrained(folder)
    return ResolvedModel(name="calm", path=folder, format="huggingface")


class TestConformance(ExecutorConformance):
    settings = CpuSettings(threads=2, weights="w8")
    dtype = "auto"
    exact = False

    @pytest.fixture(autouse=True)
    def use_calm_model(self, calm_model):
        self.model = calm_model

    def make_executor(self, context):
        return create(context)


class TestBfloat16Conformance(TestConformance):
    settings = CpuSettings(threads=2, weights="bf16")


class TestFloat32WeightsConformance(TestConformance):
    settings = CpuSettings(threads=2, weights="f32", kv="int8")


def near(actual, expected):
    return float((actual - expected).norm() / expected.norm()) < 0.05


@pytest.mark.parametrize("length", [17, 32, 45])
def test_a_copied_block_continues_as_what_it_was_copied_from(native, prompt, length):
    """The child shares the blocks before, and the copied one holds more than it may see."""
    driver, tokens = native("mistral", 2), prompt(length)
    whole = driver.logits(tokens)[0]
    parent = driver.start([*tokens, 1, 2, 3])
    driver.step(driver.slice(parent.seq_id, 0, length + 3, sample=False), started=[parent])
    child, last, copied = driver.start(tokens), (length - 1) // 16, driver.free.pop()
    blocks = (*driver.blocks[parent.seq_id][:last], copied)
    piece = SequenceSlice(seq_id=child.seq_id, start=length - 1, num_tokens=1, new_block_ids=blocks, sample=True)
    driver.step(piece, started=[child], copies=((driver.blocks[parent.seq_id][last], copied),))
    assert near(driver.executor.recorded[0], whole[-1])


def test_swapped_blocks_come_back(native, prompt):
    driver, tokens = native("llama", 2, swap_tokens=64), prompt(40)
    whole = driver.logits(tokens)[0]
    first = driver.start(tokens)
    driver.step(driver.slice(first.seq_id, 0, 39, sample=False), started=[first])
    out = tuple(zip(driver.blocks[first.seq_id], (2, 0, 3), strict=True))
    driver.step(released=[first.seq_id], swap_out=out)
    driver.generate(*[prompt(60, seed) for seed in range(20)], tokens=2)
    again = driver.start(tokens)
    blocks = tuple(driver.free.pop() for _ in range(3))
    piece = SequenceSlice(seq_id=again.seq_id, start=39, num_tokens=1, new_block_ids=blocks, sample=True)
    driver.step(piece, started=[again], swap_in=tuple(zip((2, 0, 3), blocks, strict=True)))
    assert near(driver.executor.recorded[0], whole[-1])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("lengths", [(6, 7), (20, 21)])
def test_a_sick_sequence_fails_alone_and_leaves_nothing_behind(
    tiny_model, driver_class, tmp_path, prompt, threads, lengths
):
    """Token 159 has a NaN in its embedding. The blocks it touched go to a healthy sequence afterwards."""
    reference = tiny_model("even widths").reference
    kept = reference.model.embed_tokens.weight[159].clone()
    with torch.no_grad():
        reference.model.embed_tokens.weight[159, 40] = torch.nan
        reference.save_pretrained(tmp_path)
        reference.model.embed_tokens.weight[159] = kept
    driver = driver_class(
        ResolvedModel(name="sick", path=tmp_path, format="huggingface"),
        dtype="auto",
        kv_cache_tokens=64,
        settings=CpuSettings(threads=threads),
    )
    healthy, sick = [[token % 150 for token in prompt(length)] for length in lengths]
    sick[4] = 159
    expected = driver.generate(healthy, tokens=5)[0]
    starts = [driver.start(healthy), driver.start(sick)]
    slices = [driver.slice(start.seq_id, 0, len(start.token_ids)) for start in starts]
    result = driver.step(*slices, started=starts)
    assert result.token_ids == [expected[:1], []]
    assert result.errors == {starts[1].seq_id: NOT_FINITE}
    driver.step(released=[start.seq_id for start in starts])
    for _ in range(3):
        assert driver.generate(healthy, tokens=5)[0] == expected
    driver.executor.shutdown()


def test_a_plan_without_slices(native, prompt):
    driver = native("llama", 2)
    start = driver.start(prompt(5))
    assert driver.step(started=[start]).token_ids == []
    assert driver.step(driver.slice(start.seq_id, 0, 3, sample=False)).token_ids == [[]]
    assert len(driver.step(driver.slice(start.seq_id, 3, 2)).token_ids[0]) == 1


def threads():
    """The ids of this process's threads."""
    return {int(task.name) for task in TASKS.iterdir()}


def is_asleep(thread):
    """Whether a thread waits, and how often it has begun to."""
    folder = TASKS / str(thread)
    switches = (folder / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0]
    return (folder / "stat").read_text().rpartition(")")[2].split()[0] == "S", int(switches)


@needs_tasks
def test_threads_sleep_between_steps_and_end_with_the_executor(native, prompt):
    native("llama", 1)  # makes the model, for which other libraries start threads
    before = threads()
    driver = native("llama", 4)
    driver.generate(prompt(20), tokens=3)
    own = threads() - before
    assert len(own) == 3
    deadline = time.monotonic() + 20
    while not all(is_asleep(thread)[0] for thread in own):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    asleep = [is_asleep(thread) for thread in own]
    time.sleep(0.2)  # in which none may wake up
    assert [is_asleep(thread) for thread in own] == asleep
    assert len(driver.generate(prompt(20), tokens=3)[0]) == 3
    driver.executor.shutdown()
    assert threads() <= before


NO_TORCH = """
import sys
from pathlib import Path
from corelm.api import *
from corelm_cpu.plugin import create
from corelm_cpu.settings import CpuSettings

model = ResolvedModel(name="tiny", path=Path(sys.argv[1]), format="huggingface")
settings = CpuSettings(threads=2, cache_weights=False)
sizes = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "kv_cache_tokens": 256}
executor = create(ExecutorContext(model=model, settings=settings, **sizes))
info = executor.load(lambda fraction, what: None)
sampling = SamplingParams(temperature=1.0, seed=1, logprobs=2, prompt_logprobs=1, repetition_penalty=1.2)
start = SequenceStart(seq_id=1, token_ids=[1, 2, 3], prompt_len=3, sampling=sampling)
piece = SequenceSlice(seq_id=1, start=0, num_tokens=3, new_block_ids=(0,), sample=True)
result = executor.collect(executor.submit(StepPlan(step_id=1, started=(start,), slices=(piece,))))
assert len(result.token_ids[0]) == 1 and result.logprobs[1] and len(result.prompt_logprobs[1]) == 2
executor.shutdown()
assert not {"torch", "transformers"} & sys.modules.keys()
"""


def test_it_needs_no_torch(tiny_model):
    command = [sys.executable, "-c", NO_TORCH, str(tiny_model("llama").resolved.path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr

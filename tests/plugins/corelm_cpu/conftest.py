"""Tiny random models of every architecture, and a driver that plays the engine."""

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from corelm_cpu import executor, kernels
from corelm_cpu.executor import CpuExecutor
from corelm_cpu.kernels import KVKind
from corelm_cpu.native_runner import NativeRunner
from corelm_cpu.packed import Kind, PackedWeights, WeightSetting
from corelm_cpu.runner import Runner
from corelm_cpu.settings import CpuSettings
from corelm_cpu.torch_runner import TorchRunner
from corelm_torch.batch import Batch, ScoredRows
from corelm_torch.hookspecs import ModelParts
from corelm_torch.outputs import StepOutputs
from corelm_torch.parts import load_parts

from corelm.api import (
    ExecutorContext,
    ResolvedModel,
    SamplingParams,
    SequenceSlice,
    SequenceStart,
    StepPlan,
    StepResult,
)

SIZES: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 72,
    "intermediate_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
MODELS: dict[str, Callable[[], transformers.PretrainedConfig]] = {
    "llama": lambda: transformers.LlamaConfig(**SIZES),
    "tied": lambda: transformers.LlamaConfig(**SIZES | {"tie_word_embeddings": True}),
    "one head each": lambda: transformers.LlamaConfig(**SIZES | {"num_key_value_heads": 6}),
    "biases": lambda: transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True),
    "linear rope": lambda: transformers.LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0}
    ),
    "llama3 rope": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=LLAMA3),
    "yarn rope": lambda: transformers.LlamaConfig(**SIZES, rope_parameters=YARN),
    "mistral": lambda: transformers.MistralConfig(**SIZES, sliding_window=9),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=7, max_window_layers=1),
    "even widths": lambda: transformers.LlamaConfig(**SIZES | {"hidden_size": 96, "intermediate_size": 128}),
    "qwen3": lambda: transformers.Qwen3Config(**SIZES),
}


@dataclass(frozen=True)
class TinyModel:
    """A model directory and transformers' instance of it."""

    resolved: ResolvedModel
    reference: Any

    def logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """transformers' logits [tokens, vocabulary]."""
        with torch.no_grad():
            return self.reference(torch.tensor([list(token_ids)])).logits[0]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test read or write the user's packed weights."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TinyModel]:
    """Make a random model by its name in `MODELS`."""
    made: dict[str, TinyModel] = {}

    def make(name: str) -> TinyModel:
        if name not in made:
            made[name] = _make_tiny(name, tmp_path_factory.mktemp("model"))
        return made[name]

    return make


def _make_tiny(name: str, folder: Path) -> TinyModel:
    torch.manual_seed(7)
    config = MODELS[name]()
    reference = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for parameter_name, parameter in reference.named_parameters():
            parameter.normal_(1.0 if "norm" in parameter_name else 0.0, 0.2)
    reference.save_pretrained(folder)
    return TinyModel(ResolvedModel(name=name, path=folder, format="huggingface"), reference)


class RecordingExecutor(CpuExecutor):
    """Keeps the logits of every token of the last step, [M, vocabulary]."""

    recorded: torch.Tensor

    def _load_runner(self, *arguments: Any) -> Runner:
        runner = super()._load_runner(*arguments)
        compute = runner.compute

        def recording(batch: Batch) -> StepOutputs:
            rows = np.arange(len(batch.token_ids))
            every = ScoredRows(rows=rows, token_ids=rows, top=rows, seq_ids=rows)
            outputs = compute(replace(batch, scored=every))
            self.recorded = torch.from_numpy(outputs.score(slice(0, len(rows))).copy())
            return compute(batch)

        runner.compute = recording  # type: ignore[method-assign]
        return runner


class Driver:
    """Plays the engine: gives out blocks in random order and sends plans."""

    def __init__(self, model: ResolvedModel, **options: Any) -> None:
        context: dict[str, Any] = {
            "dtype": "float32",
            "max_num_seqs": 40,
            "max_num_batched_tokens": 4096,
            "kv_cache_tokens": 16384,
            "settings": CpuSettings(threads=1),
        }
        self.executor = RecordingExecutor(ExecutorContext(model=model, **context | options))
        self.info = self.executor.load(lambda fraction, what: None)
        self.free = list(range(self.info.num_blocks))
        random.Random(3).shuffle(self.free)
        self.blocks: dict[int, list[int]] = {}
        self.new_blocks: dict[int, int] = {}
        self.steps = itertools.count()
        self.seq_ids = itertools.count()

    def start(
        self,
        token_ids: Sequence[int],
        prompt_len: int | None = None,
        bad_words: Sequence[Sequence[int]] = (),
        end_token_ids: Sequence[int] = (),
        embed: bool = False,
        **sampling: Any,
    ) -> SequenceStart:
        """A new sequence; greedy unless told otherwise."""
        seq_id = next(self.seq_ids)
        self.blocks[seq_id] = []
        return SequenceStart(
            seq_id=seq_id,
            token_ids=list(token_ids),
            prompt_len=prompt_len or len(token_ids),
            sampling=SamplingParams(**{"temperature": 0.0, "seed": 0} | sampling),
            bad_words=tuple(map(tuple, bad_words)),
            end_token_ids=tuple(end_token_ids),
            embed=embed,
        )

    def slice(self, seq_id: int, start: int, num_tokens: int, *, sample: bool = True) -> SequenceSlice:
        """A slice with the blocks it needs."""
        held = self.blocks[seq_id]
        needed = -(-(start + num_tokens) // self.info.block_size) - len(held)
        new = [self.free.pop() for _ in range(needed)]
        held += new
        return SequenceSlice(seq_id=seq_id, start=start, num_tokens=num_tokens, new_block_ids=tuple(new), sample=sample)

    def step(
        self,
        *slices: SequenceSlice,
        started: Sequence[SequenceStart] = (),
        released: Sequence[int] = (),
        **block_operations: tuple[tuple[int, int], ...],
    ) -> StepResult:
        """Run one plan."""
        for seq_id in released:
            self.free[:0] = self.blocks.pop(seq_id)
        plan = StepPlan(
            step_id=next(self.steps),
            released=tuple(released),
            started=tuple(started),
            slices=slices,
            **block_operations,
        )
        return self.executor.collect(self.executor.submit(plan))

    def logits(self, *prompts: Sequence[int], chunk: int = 10**6) -> list[torch.Tensor]:
        """The logits of every position of each prompt, computed together in chunks of at most `chunk` tokens."""
        starts = [self.start(prompt) for prompt in prompts]
        parts: list[list[torch.Tensor]] = [[] for _ in prompts]
        started: Sequence[SequenceStart] = starts
        for first in range(0, max(map(len, prompts)), chunk):
            pieces = [
                (index, self.slice(start.seq_id, first, min(chunk, len(prompt) - first), sample=False))
                for index, (start, prompt) in enumerate(zip(starts, prompts, strict=True))
                if first < len(prompt)
            ]
            self.step(*(piece for _, piece in pieces), started=started)
            started = ()
            rows = self.executor.recorded.split([piece.num_tokens for _, piece in pieces])
            for (index, _), row in zip(pieces, rows, strict=True):
                parts[index].append(row)
        self.step(released=[start.seq_id for start in starts])
        return [torch.cat(part) for part in parts]

    def spoil(self, token: int, number: float) -> None:
        """Make the embedding of a token, in float32 or bfloat16, this number, which may be none."""
        runner = self.executor._runner
        if isinstance(runner, TorchRunner):
            runner._model.model.embed_tokens.weight[token] = number
            return
        assert isinstance(runner, NativeRunner)
        packed: PackedWeights = runner._model._kept[0]
        matrix = packed.matrices["embedding"]
        inputs = -(-matrix.inputs // 32) * 32
        tiles = packed.data[matrix.offset :].view("<f4")
        assert matrix.kind == Kind.F32
        tiles[token // 32 * 32 * inputs :][: 32 * inputs].reshape(inputs, 32)[: matrix.inputs, token % 32] = number

    def generate(self, *prompts: Sequence[int], tokens: int, **sampling: Any) -> list[list[int]]:
        """Generate `tokens` tokens after each prompt, all together."""
        starts = [self.start(prompt, **sampling) for prompt in prompts]
        ids = [start.seq_id for start in starts]
        result = self.step(
            *(self.slice(seq_id, 0, len(prompt)) for seq_id, prompt in zip(ids, prompts, strict=True)), started=starts
        )
        outputs = [list(new) for new in result.token_ids]
        for count in range(tokens - 1):
            slices = [self.slice(seq_id, len(prompt) + count, 1) for seq_id, prompt in zip(ids, prompts, strict=True)]
            for output, new in zip(outputs, self.step(*slices).token_ids, strict=True):
                output += new
        self.step(released=ids)
        return outputs


@pytest.fixture(scope="session")
def driver_class() -> type[Driver]:
    """The driver, for tests with a model or options of their own."""
    return Driver


@pytest.fixture
def drive(tiny_model: Callable[[str], TinyModel]) -> Iterator[Callable[..., Driver]]:
    """Make a driver for a tiny model by name."""
    drivers: list[Driver] = []

    def make(name: str, **options: Any) -> Driver:
        drivers.append(Driver(tiny_model(name).resolved, **options))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.executor.shutdown()


@pytest.fixture
def plugins_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the layers of all models for those of a plugin, which PyTorch computes."""

    def load(model: ResolvedModel) -> ModelParts:
        return replace(load_parts(model), plain=None)

    monkeypatch.setattr(executor, "load_parts", load)


@pytest.fixture(params=["native float32", "torch float32", "torch bfloat16"])
def drive_each(request: pytest.FixtureRequest, drive: Callable[..., Driver]) -> Callable[..., Driver]:
    """Make a driver for a tiny model, computed by each of those with which decoding repeats itself to the bit."""
    who, dtype = request.param.split()
    if who == "torch":
        request.getfixturevalue("plugins_layers")
    return functools.partial(drive, dtype=dtype)


@pytest.fixture
def native(drive: Callable[..., Driver]) -> Callable[..., Driver]:
    """Make a driver for a tiny model that the native kernels compute as a whole, if not told otherwise with 8 bits."""

    def make(name: str, threads: int = 1, kv: KVKind = "bf16", weights: WeightSetting = "w8", **options: Any) -> Driver:
        driver = drive(name, dtype="auto", settings=CpuSettings(threads=threads, weights=weights, kv=kv), **options)
        assert isinstance(driver.executor._runner, NativeRunner)
        return driver

    return make


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Look for the native kernels in an empty folder."""
    monkeypatch.setattr(kernels, "LIBRARY", tmp_path / "_kernels.so")
    monkeypatch.setattr(kernels, "REASON", tmp_path / "_kernels.txt")
    kernels.library.cache_clear()
    yield tmp_path
    kernels.library.cache_clear()


@pytest.fixture
def prompt() -> Callable[[int, int], list[int]]:
    """Random token ids of a given length and seed, for the tiny models."""

    def make(length: int, seed: int = 0) -> list[int]:
        return np.random.default_rng(seed).integers(0, SIZES["vocab_size"], length).tolist()

    return make


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with an argument `model_name` for every tiny model."""
    if "model_name" in metafunc.fixturenames:
        metafunc.parametrize("model_name", MODELS)

"""The executor "cpu"."""

import torch
from corelm_torch.batch import Batch, SequenceTable
from corelm_torch.config import ModelConfig
from corelm_torch.models import LlamaModel, load_parts
from corelm_torch.step import finish_step
from corelm_torch.weights import assign_weights

from corelm.api import ExecutorContext, ExecutorInfo, Progress, SimpleExecutor, StepPlan, StepResult
from corelm_cpu.kv_cache import KVCache
from corelm_cpu.native_ops import NativeKVCache, NativeOps, choose_attention
from corelm_cpu.ops import CpuOps, FastOps, InvariantOps
from corelm_cpu.packing import pack_linears
from corelm_cpu.resources import available_memory, usable_cpus
from corelm_cpu.settings import CpuSettings
from corelm_cpu.sizing import choose_dtype, choose_max_model_len, choose_num_blocks, gib, has_bfloat16, num_swap_blocks

CAPABILITIES = frozenset({"prefix_cache", "copy_blocks", "logprobs", "penalties", "token_masks", "logits_processors"})


class CpuExecutor(SimpleExecutor):
    """Runs a model on the CPU.

    In float32 a sequence's tokens do not depend on what else is in its batches, nor on how its prompt is chunked.
    """

    _model: LlamaModel
    _table: SequenceTable
    _cache: KVCache | NativeKVCache
    _ops: CpuOps

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._settings = context.settings or CpuSettings()

    def load(self, progress: Progress) -> ExecutorInfo:
        context = self._context
        progress(0.0, "reading the configuration")
        threads = self._settings.threads or usable_cpus()
        torch.set_num_threads(threads)
        parts = load_parts(context.model)
        config = parts.config
        dtype = choose_dtype(context.dtype)
        max_model_len = choose_max_model_len(context.max_model_len, config)
        model = parts.build(dtype)
        num_blocks = choose_num_blocks(
            context,
            config,
            dtype=dtype,
            max_model_len=max_model_len,
            weight_bytes=sum(weight.numel() * weight.element_size() for weight in model.parameters()),
            available=available_memory(),
            memory_fraction=self._settings.memory_fraction,
        )
        model.materialise(max_model_len=max_model_len, device=torch.device("cpu"))
        assign_weights(model, parts.weights(), total=None, progress=progress)
        if dtype == torch.bfloat16 and has_bfloat16():
            pack_linears(model)
        self._model = model
        kernels = self._make_ops(config, dtype, num_blocks, threads)
        self._table = SequenceTable(
            rows=context.max_num_seqs,
            max_model_len=max_model_len,
            block_size=context.block_size,
            padding_block=self._cache.padding_block,
            vocab_size=config.vocab_size,
            logits_processors=context.logits_processors,
        )
        progress(1.0, "loaded")
        return ExecutorInfo(
            num_blocks=num_blocks,
            block_size=context.block_size,
            vocab_size=config.vocab_size,
            max_model_len=max_model_len,
            dtype=str(dtype).removeprefix("torch."),
            device="cpu",
            capabilities=CAPABILITIES,
            num_swap_blocks=num_swap_blocks(context),
            details={"threads": str(threads), "kernels": kernels, "KV cache": gib(self._cache.num_bytes)}
            | ({"swap space": gib(self._cache.num_swap_bytes)} if self._cache.num_swap_bytes else {}),
        )

    def _make_ops(self, config: ModelConfig, dtype: torch.dtype, num_blocks: int, threads: int) -> str:
        """Choose the operations and allocate their cache; what to call the kernels."""
        block_size, num_swap = self._context.block_size, num_swap_blocks(self._context)
        attention, kernels = choose_attention(
            config, kernels=self._settings.kernels, dtype=dtype, block_size=block_size, threads=threads
        )
        if attention is not None:
            native = NativeKVCache(attention, layers=config.num_layers, num_blocks=num_blocks, num_swap_blocks=num_swap)
            self._cache, self._ops = native, NativeOps(config, attention, native)
            return kernels
        cache = KVCache(
            layers=config.num_layers,
            heads=config.num_kv_heads,
            num_blocks=num_blocks,
            num_swap_blocks=num_swap,
            block_size=block_size,
            head_dim=config.head_dim,
            dtype=dtype,
        )
        make = InvariantOps if dtype == torch.float32 else FastOps
        self._cache, self._ops = cache, make(config, cache, dtype)
        return kernels

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> StepResult:
        self._cache.copy(plan.copies)
        self._cache.swap_out(plan.swap_out)
        self._cache.swap_in(plan.swap_in)
        batch = self._table.apply(plan)
        if not plan.slices:
            return StepResult(step_id=plan.step_id, token_ids=[])
        result, sampled = finish_step(plan, batch, self._hidden(batch), self._head)
        self._table.append(batch, sampled)
        return result

    def _hidden(self, batch: Batch) -> torch.Tensor:
        """Compute the step; the final hidden states of ``batch.output_rows``."""
        self._ops.begin(batch)
        hidden: torch.Tensor = self._model(
            torch.from_numpy(batch.token_ids),
            torch.from_numpy(batch.positions),
            torch.from_numpy(batch.output_rows),
            self._ops,
        )
        return hidden

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of `hidden`."""
        return self._model.logits(hidden, self._ops)

    def shutdown(self) -> None:
        for name in ("_model", "_table", "_cache", "_ops"):
            self.__dict__.pop(name, None)

"""The executor "gpu"."""

import torch
from corelm_torch.batch import SequenceTable
from corelm_torch.config import ModelShape
from corelm_torch.parts import load_parts
from corelm_torch.sizing import choose_max_model_len, choose_num_blocks, gib, num_swap_blocks
from corelm_torch.step import CAPABILITIES, finish_step

from corelm.api import ExecutorContext, ExecutorInfo, Progress, SimpleExecutor, StepPlan, StepResult
from corelm_gpu.device import choose_dtype, device_name, find_device, free_memory
from corelm_gpu.kv_cache import KVCache
from corelm_gpu.runner import Runner
from corelm_gpu.settings import GpuSettings


class GpuExecutor(SimpleExecutor):
    """Runs a model on one GPU."""

    _runner: Runner
    _cache: KVCache
    _table: SequenceTable

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._settings = context.settings or GpuSettings()

    def load(self, progress: Progress) -> ExecutorInfo:
        context = self._context
        progress(0.0, "reading the configuration")
        device, dtype = find_device(self._settings.device), choose_dtype(context.dtype)
        parts = load_parts(context.model)
        max_model_len = choose_max_model_len(context.max_model_len, parts.config)
        self._runner = Runner(parts, dtype, device, max_model_len, progress)
        num_blocks = self._num_blocks(parts.config, dtype, device, max_model_len)
        self._cache = KVCache(
            layers=parts.config.num_layers,
            num_blocks=num_blocks,
            num_swap_blocks=num_swap_blocks(context),
            kv_heads=parts.config.num_kv_heads,
            block_size=context.block_size,
            head_dim=parts.config.head_dim,
            dtype=dtype,
            device=device,
        )
        self._runner.use(self._cache)
        self._table = SequenceTable(
            rows=context.max_num_seqs,
            max_model_len=max_model_len,
            block_size=context.block_size,
            padding_block=0,
            vocab_size=parts.config.vocab_size,
            logits_processors=context.logits_processors,
        )
        progress(1.0, "loaded")
        swap_bytes = self._cache.num_swap_bytes
        return ExecutorInfo(
            num_blocks=num_blocks,
            block_size=context.block_size,
            vocab_size=parts.config.vocab_size,
            max_model_len=max_model_len,
            dtype=str(dtype).removeprefix("torch."),
            device=str(device),
            capabilities=CAPABILITIES,
            embedding_size=parts.config.hidden_size,
            num_swap_blocks=num_swap_blocks(context),
            details={"GPU": device_name(device), "KV cache": gib(self._cache.num_bytes)}
            | ({"swap space": gib(swap_bytes)} if swap_bytes else {}),
        )

    def _num_blocks(self, config: ModelShape, dtype: torch.dtype, device: torch.device, max_model_len: int) -> int:
        free, total = free_memory(device)
        per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * dtype.itemsize
        return choose_num_blocks(
            self._context,
            block_bytes=per_token * self._context.block_size,
            max_model_len=max_model_len,
            weight_bytes=0,
            available=free - int((1 - self._settings.memory_fraction) * total),
            memory_fraction=1.0,
        )

    def execute(self, plan: StepPlan) -> StepResult:
        self._cache.copy(plan.copies)
        self._cache.swap_out(plan.swap_out)
        self._cache.swap_in(plan.swap_in)
        batch = self._table.apply(plan)
        if not plan.slices:
            return StepResult(step_id=plan.step_id, token_ids=[])
        result, sampled = finish_step(plan, batch, self._runner.compute(batch))
        self._table.append(batch, sampled)
        return result

    def shutdown(self) -> None:
        for name in ("_runner", "_cache", "_table"):
            self.__dict__.pop(name, None)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

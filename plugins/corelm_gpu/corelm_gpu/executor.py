"""The executor "gpu"."""

import gc
import logging

import torch
from corelm_torch.batch import Batch, SequenceTable
from corelm_torch.hookspecs import ModelParts
from corelm_torch.parts import load_parts
from corelm_torch.sizing import choose_max_model_len, choose_num_blocks, gib, num_swap_blocks
from corelm_torch.step import CAPABILITIES
from msgspec.structs import replace
from triton import OutOfResources

from corelm.api import Executor, ExecutorContext, ExecutorInfo, ModelLoadError, Progress, StepPlan, StepResult
from corelm_gpu.device import check_device, choose_dtype, choose_kv_dtype, device_name, find_device
from corelm_gpu.kv_cache import KVCache
from corelm_gpu.largest_step import largest_step
from corelm_gpu.memory import allocated_memory, enough_memory, left_for_cache
from corelm_gpu.runner import Runner
from corelm_gpu.sampling import DeviceSampler
from corelm_gpu.settings import GpuSettings
from corelm_gpu.steps import Part, Step, halves

logger = logging.getLogger(__name__)


class GpuExecutor(Executor):
    """Runs a model on one GPU. A step is enqueued when it is submitted, and waited for when it is collected.

    The tokens that a step samples stay on the device for the next one; the host gets a copy.
    """

    _runner: Runner
    _sampler: DeviceSampler
    _cache: KVCache
    _table: SequenceTable

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._settings: GpuSettings = context.settings or GpuSettings()
        self._last: Step | None = None

    def load(self, progress: Progress) -> ExecutorInfo:
        context, settings = self._context, self._settings
        progress(0.0, "reading the configuration")
        self._device, dtype = find_device(settings.device), choose_dtype(context.dtype)
        self._kv_dtype = choose_kv_dtype(settings.kv, dtype, self._device)
        parts = load_parts(context.model)
        self._config = parts.config
        self._max_model_len = choose_max_model_len(context.max_model_len, parts.config)
        with enough_memory(self._device, "load the model", "a smaller model, or one with quantised weights"):
            self._runner = Runner(
                context,
                parts,
                dtype=dtype,
                device=self._device,
                max_model_len=self._max_model_len,
                keep_quantised=settings.weights == "auto",
                progress=lambda fraction, text: progress(0.8 * fraction, text),
            )
        self._sampler = DeviceSampler(vocab_size=parts.config.vocab_size, device=self._device)
        progress(0.8, "measuring the largest step")
        num_blocks = self._num_blocks()
        self._table = self._make_table()
        with enough_memory(self._device, "hold the KV cache and capture steps", "fewer --kv-cache-tokens"):
            self._cache = self._make_cache(num_blocks, num_swap_blocks(context))
            self._cache.try_copies()
            self._runner.use(self._cache)
            if self._captures:
                self._runner.graphs.capture(lambda fraction, text: progress(0.8 + 0.2 * fraction, text))
        progress(1.0, "loaded")
        swap_bytes = self._cache.num_swap_bytes
        return ExecutorInfo(
            num_blocks=num_blocks,
            block_size=context.block_size,
            vocab_size=parts.config.vocab_size,
            max_model_len=self._max_model_len,
            dtype=str(dtype).removeprefix("torch."),
            device=str(self._device),
            capabilities=CAPABILITIES,
            embedding_size=parts.config.hidden_size,
            num_swap_blocks=num_swap_blocks(context),
            pipeline_depth=2,
            details={
                "GPU": device_name(self._device),
                "decoding": self._decoding(parts),
                "KV cache": gib(self._cache.num_bytes),
            }
            | ({"swap space": gib(swap_bytes)} if swap_bytes else {}),
        )

    @property
    def _captures(self) -> bool:
        return self._settings.graphs and self._runner.capturable

    def _decoding(self, parts: ModelParts) -> str:
        """How steps of one token a sequence run, for the start-up banner."""
        if self._captures:
            return f"captured, {len(self._runner.graphs.sizes)} batch sizes"
        if self._settings.graphs:
            return f"launched (the layers of {parts.config.architecture} are {parts.whose})"
        return "launched (gpu.graphs is off)"

    def submit(self, plan: StepPlan) -> Step:
        if self._last is not None and self._table.waits(plan):
            self._last.settle(self._table)
        self._cache.copy(plan.copies)
        self._cache.swap_out(plan.swap_out)
        self._cache.swap_in(plan.swap_in)
        batch = self._table.apply(plan)
        self._last = Step(plan=plan, parts=self._compute(plan, batch) if plan.slices else [])
        return self._last

    def collect(self, handle: Step) -> StepResult:
        return handle.settle(self._table)

    def check_health(self) -> None:
        check_device(self._device)

    def shutdown(self) -> None:
        self._last = None
        for name in ("_runner", "_sampler", "_cache", "_table"):
            self.__dict__.pop(name, None)
        gc.collect()  # a runner and its graphs refer to each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _compute(self, plan: StepPlan, batch: Batch) -> list[Part]:
        """Enqueue a step, in halves if the device has not enough memory for all of it."""
        try:
            return [self._enqueue(plan, batch)]
        except torch.OutOfMemoryError as error:
            logger.warning("out of memory in a step of %d tokens: %s", len(batch.token_ids), error)
        # Not in the handler, where the error still holds what the step allocated.
        torch.cuda.empty_cache()
        parts = halves(plan.slices)
        if parts is None:
            return [Part(plan=plan, batch=batch, computed=None)]
        plans = [replace(plan, slices=part) for part in parts]
        return [part for half in plans for part in self._compute(half, self._table.build(half.slices))]

    def _enqueue(self, plan: StepPlan, batch: Batch) -> Part:
        computed = self._runner.compute(batch)
        sampling = self._sampler.sample(computed.logits, batch)
        self._runner.remember(computed, sampling.token_ids)
        return Part(plan=plan, batch=batch, computed=(sampling, computed.prompts))

    def _num_blocks(self) -> int:
        weights = allocated_memory(self._device)
        cache = self._make_cache(1, 0)
        self._runner.use(cache)
        left = left_for_cache(
            self._device,
            self._settings.memory_fraction,
            step=self._try_largest_step,
            graphs=self._runner.graphs.cost if self._captures else lambda: 0,
        )
        return choose_num_blocks(
            self._context,
            block_bytes=cache.num_bytes,
            max_model_len=self._max_model_len,
            weight_bytes=weights,
            swap_bytes=0,
            available=left + weights,
            memory_fraction=1.0,
        )

    def _try_largest_step(self) -> None:
        batch = self._make_table().apply(largest_step(self._context, self._max_model_len, self._config.vocab_size))
        try:
            self._sampler.sample(self._runner.compute(batch).logits, batch).wait()
        except OutOfResources as error:
            raise ModelLoadError(
                f"Kernels for the heads of this model do not fit on {device_name(self._device)} with --dtype "
                f"{self._context.dtype}; in bfloat16 they take less. {error}"
            ) from error

    def _make_cache(self, num_blocks: int, swap_blocks: int) -> KVCache:
        return KVCache(
            layers=self._config.num_layers,
            num_blocks=num_blocks,
            num_swap_blocks=swap_blocks,
            kv_heads=self._config.num_kv_heads,
            block_size=self._context.block_size,
            head_dim=self._config.head_dim,
            dtype=self._kv_dtype,
            device=self._device,
        )

    def _make_table(self) -> SequenceTable:
        return SequenceTable(
            rows=self._context.max_num_seqs,
            max_model_len=self._max_model_len,
            block_size=self._context.block_size,
            padding_block=0,
            vocab_size=self._config.vocab_size,
            logits_processors=self._context.logits_processors,
        )

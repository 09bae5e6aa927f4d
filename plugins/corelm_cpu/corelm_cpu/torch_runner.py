"""A model run by PyTorch; in bfloat16 with the attention of the native kernels, where there are any."""

import numpy as np
import torch
from corelm_torch.arrays import Floats
from corelm_torch.batch import Batch
from corelm_torch.hookspecs import ModelParts
from corelm_torch.outputs import HeadOutputs
from corelm_torch.sizing import choose_num_blocks, num_swap_blocks

from corelm.api import ExecutorContext, ModelLoadError, Progress
from corelm_cpu.kernels import KernelsMissing, PagedAttention
from corelm_cpu.kv_cache import KVCache
from corelm_cpu.mode import TorchMode
from corelm_cpu.native_cache import NativeKVCache
from corelm_cpu.native_ops import NativeOps
from corelm_cpu.ops import CpuOps, FastOps, InvariantOps
from corelm_cpu.packing import pack_linears
from corelm_cpu.resources import available_memory
from corelm_cpu.settings import CpuSettings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class TorchRunner:
    """See `corelm_cpu.runner.Runner`."""

    cache: KVCache | NativeKVCache
    _ops: CpuOps

    def __init__(
        self,
        context: ExecutorContext,
        settings: CpuSettings,
        parts: ModelParts,
        *,
        mode: TorchMode,
        threads: int,
        max_model_len: int,
        progress: Progress,
    ) -> None:
        """Load the model. Raises `ModelLoadError`."""
        torch.set_num_threads(threads)
        self._context, self._config = context, parts.config
        best = "bfloat16" if has_bfloat16() else "float32"
        self.dtype: str = best if mode.dtype == "auto" else mode.dtype
        self._dtype = DTYPES[self.dtype]
        attention, kernels = self._choose_attention(settings, mode.why, threads)
        self._model = parts.build(self._dtype)
        block = self._config.num_layers * self._layer_block_bytes(attention)
        self.num_blocks = choose_num_blocks(
            context,
            block_bytes=block,
            max_model_len=max_model_len,
            weight_bytes=sum(weight.numel() * weight.element_size() for weight in self._model.parameters()),
            swap_bytes=num_swap_blocks(context) * block,
            available=available_memory(),
            memory_fraction=settings.memory_fraction,
        )
        self._model.load(max_model_len=max_model_len, device=torch.device("cpu"), progress=progress)
        if self.dtype == "bfloat16" and has_bfloat16():
            pack_linears(self._model)
        self._make_ops(attention)
        self.details = {"kernels": kernels}

    def _choose_attention(self, settings: CpuSettings, why: str, threads: int) -> tuple[PagedAttention | None, str]:
        """The native attention, where it is used, and what to call the kernels."""
        try:
            attention = self._native_attention(settings, threads)
        except KernelsMissing as missing:
            if settings.kv == "int8":
                raise ModelLoadError(f"cpu.kv int8 needs the native kernels: {missing}.") from missing
            return None, f"torch ({why})"
        return attention, f"torch, attention {attention.name} ({why})"

    def _native_attention(self, settings: CpuSettings, threads: int) -> PagedAttention:
        """Raises `KernelsMissing`."""
        if self.dtype == "float32":
            raise KernelsMissing("exact float32")
        if settings.kernels == "torch":
            raise KernelsMissing("cpu.kernels is torch")
        if self._config.softcap is not None:
            raise KernelsMissing("attention scores have a softcap")
        return PagedAttention(
            heads=self._config.num_heads,
            kv_heads=self._config.num_kv_heads,
            head_dim=self._config.head_dim,
            block_size=self._context.block_size,
            threads=threads,
            kv="int8" if settings.kv == "int8" else "bf16",
        )

    def _layer_block_bytes(self, attention: PagedAttention | None) -> int:
        if attention is not None:
            return attention.block_bytes
        block = self._config.num_kv_heads * self._config.head_dim * self._context.block_size
        return 2 * block * self._dtype.itemsize

    def _make_ops(self, attention: PagedAttention | None) -> None:
        """Allocate the cache, and the operations that use it."""
        if attention is None:
            self.cache = self._torch_cache()
            make = InvariantOps if self.dtype == "float32" else FastOps
            self._ops = make(self._config, self.cache, self._dtype)
            return
        self.cache = NativeKVCache(
            block_bytes=attention.block_bytes,
            layers=self._config.num_layers,
            num_blocks=self.num_blocks,
            num_swap_blocks=num_swap_blocks(self._context),
        )
        self._ops = NativeOps(self._config, attention, self.cache)

    def _torch_cache(self) -> KVCache:
        return KVCache(
            layers=self._config.num_layers,
            heads=self._config.num_kv_heads,
            num_blocks=self.num_blocks,
            num_swap_blocks=num_swap_blocks(self._context),
            block_size=self._context.block_size,
            head_dim=self._config.head_dim,
            dtype=self._dtype,
        )

    @torch.inference_mode()
    def compute(self, batch: Batch) -> HeadOutputs[torch.Tensor]:
        """Compute a step."""
        return HeadOutputs(batch, self.hidden(batch), self.head, as_floats)

    def hidden(self, batch: Batch) -> torch.Tensor:
        """The final hidden states of ``batch.output_rows`` and ``batch.embedded_rows``."""
        self._ops.begin(batch)
        hidden: torch.Tensor = self._model(
            torch.from_numpy(batch.token_ids),
            torch.from_numpy(batch.positions),
            torch.from_numpy(np.concatenate([batch.output_rows, batch.embedded_rows])),
            self._ops,
        )
        return hidden

    @torch.inference_mode()
    def head(self, hidden: torch.Tensor) -> Floats:
        """Logits of `hidden`."""
        logits: Floats = self._model.logits(hidden, self._ops).numpy()
        return logits

    def close(self) -> None:
        """Nothing is held that is not freed with the runner."""


def as_floats(hidden: torch.Tensor) -> Floats:
    """Hidden states as an array of float32."""
    floats: Floats = hidden.float().numpy()
    return floats


def has_bfloat16() -> bool:
    """Whether the CPU has instructions for products in bfloat16."""
    supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return supported

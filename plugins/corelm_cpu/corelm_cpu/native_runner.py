"""A model run by the native kernels alone. Imports no torch."""

import os
from collections import Counter
from pathlib import Path

from corelm_torch.batch import Batch
from corelm_torch.hookspecs import PlainModel
from corelm_torch.sizing import choose_num_blocks, gib, num_swap_blocks

from corelm.api import ExecutorContext, Progress
from corelm_cpu.kernels import block_bytes, kernels_name
from corelm_cpu.mode import NativeMode
from corelm_cpu.native_cache import NativeKVCache
from corelm_cpu.native_model import NativeModel, NativeOutputs
from corelm_cpu.packed import PackedWeights, load_weights
from corelm_cpu.resources import available_memory
from corelm_cpu.settings import CpuSettings


class NativeRunner:
    """See `corelm_cpu.runner.Runner`."""

    def __init__(
        self,
        context: ExecutorContext,
        settings: CpuSettings,
        model: PlainModel,
        *,
        mode: NativeMode,
        threads: int,
        max_model_len: int,
        progress: Progress,
    ) -> None:
        """Load the model. Raises `ModelLoadError` and `MemoryError`."""
        config = model.config
        self.dtype: str = mode.dtype
        weights = load_weights(
            config,
            model.weights,
            setting=mode.weights,
            threads=threads,
            cache=_cache_folder() if settings.cache_weights else None,
            progress=progress,
        )
        layer_block = block_bytes(config.num_kv_heads, config.head_dim, context.block_size, mode.kv)
        block = config.num_layers * layer_block
        self.num_blocks = choose_num_blocks(
            context,
            block_bytes=block,
            max_model_len=max_model_len,
            weight_bytes=len(weights.data),
            swap_bytes=num_swap_blocks(context) * block,
            available=available_memory() + len(weights.data),
            memory_fraction=settings.memory_fraction,
        )
        self.cache = NativeKVCache(
            block_bytes=layer_block,
            layers=config.num_layers,
            num_blocks=self.num_blocks,
            num_swap_blocks=num_swap_blocks(context),
        )
        self._model = NativeModel(
            config,
            weights,
            self.cache.addresses,
            block_size=context.block_size,
            kv=mode.kv,
            max_model_len=max_model_len,
            threads=threads,
        )
        self.details = {"kernels": kernels_name(), "weights": _describe(weights), "KV": mode.kv}

    def compute(self, batch: Batch) -> NativeOutputs:
        """Compute a step."""
        return self._model.step(batch, batch.embedded_rows)

    def close(self) -> None:
        """Free the model and its threads."""
        self._model.close()


def _describe(weights: PackedWeights) -> str:
    """Such as "Q4_1, Q8_0; 0.10 GiB", what there is most of first."""
    sizes: Counter[str] = Counter()
    for matrix in weights.matrices.values():
        sizes[matrix.kind.name] += matrix.outputs * matrix.inputs
    return f"{', '.join(name for name, _ in sizes.most_common())}; {gib(len(weights.data))}"


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corelm" / "cpu"

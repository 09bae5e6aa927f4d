"""A model on the device."""

import numpy as np
import torch
from corelm_torch.arrays import Floats
from corelm_torch.batch import Batch
from corelm_torch.hookspecs import ModelParts
from corelm_torch.models import Model
from corelm_torch.outputs import HeadOutputs

from corelm.api import Progress
from corelm_gpu.kv_cache import KVCache
from corelm_gpu.ops import GpuOps


class Runner:
    """Weights, and the steps computed with them. `use` a cache before the first one."""

    _ops: GpuOps

    def __init__(
        self, parts: ModelParts, dtype: torch.dtype, device: torch.device, max_model_len: int, progress: Progress
    ) -> None:
        """Load the model. Raises `ModelLoadError`."""
        self._config = parts.config
        self._device = device
        self._model: Model = parts.build(dtype)
        self._model.load(max_model_len=max_model_len, device=device, progress=progress)

    def use(self, cache: KVCache) -> None:
        """Compute with `cache` from now on."""
        self._ops = GpuOps(self._config, cache, self._device)

    @torch.inference_mode()
    def compute(self, batch: Batch) -> HeadOutputs[torch.Tensor]:
        """Compute a step."""
        self._ops.begin(batch)
        wanted = np.concatenate([batch.output_rows, batch.embedded_rows])
        token_ids, positions, rows = map(self._to_device, (batch.token_ids, batch.positions, wanted))
        hidden = self._model(token_ids, positions, rows, self._ops)
        return HeadOutputs(batch, hidden, self._head, _floats)

    def _to_device(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self._device, non_blocking=True)

    @torch.inference_mode()
    def _head(self, hidden: torch.Tensor) -> Floats:
        return _floats(self._model.logits(hidden, self._ops))


def _floats(values: torch.Tensor) -> Floats:
    """As an array of float32 on the host."""
    floats: Floats = values.float().cpu().numpy()
    return floats

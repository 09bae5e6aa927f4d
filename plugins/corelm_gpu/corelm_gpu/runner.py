"""A model on the device."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from corelm_torch.batch import Batch
from corelm_torch.hookspecs import ModelParts
from corelm_torch.models import Model
from corelm_torch.models.layers import merge_groups
from torch import nn

from corelm.api import ExecutorContext, Progress
from corelm_gpu.attention_plan import plan_attention
from corelm_gpu.decode_graphs import DecodeGraphs
from corelm_gpu.inputs import StepInputs
from corelm_gpu.kv_cache import KVCache
from corelm_gpu.ops import GpuOps
from corelm_gpu.prompt_states import PromptStates
from corelm_gpu.quantised import keep
from corelm_gpu.staging import Staging


@dataclass(frozen=True, kw_only=True, slots=True)
class Computed:
    """What was computed for a batch, on the device. Valid until the next step is."""

    logits: torch.Tensor
    """[R, vocabulary], of ``batch.sampled``."""
    table_rows: torch.Tensor
    """[R]: the rows of their sequences."""
    prompts: PromptStates


class Runner:
    """Weights, and the steps computed with them. `use` a cache before the first one."""

    graphs: DecodeGraphs
    _ops: GpuOps

    def __init__(
        self,
        context: ExecutorContext,
        parts: ModelParts,
        *,
        dtype: torch.dtype,
        device: torch.device,
        max_model_len: int,
        keep_quantised: bool,
        progress: Progress,
    ) -> None:
        """Load the model. Raises `ModelLoadError`."""
        self._config = parts.config
        self._context = context
        self._dtype, self._device = dtype, device
        self._max_model_len = max_model_len
        self._model: Model = parts.build(dtype)
        keeping = partial(keep, device=device) if keep_quantised else None
        self._model.load(max_model_len=max_model_len, device=device, progress=progress, keep=keeping)
        if isinstance(self._model, nn.Module):
            merge_groups(self._model)
        self._staging = Staging(device)
        self._sampled = torch.zeros(context.max_num_seqs, dtype=torch.int32, device=device)
        """The token that was sampled last, by the row of its sequence."""

    @property
    def capturable(self) -> bool:
        """Whether `graphs` can capture the model's steps."""
        return self._model.capturable

    def use(self, cache: KVCache) -> None:
        """Compute with `cache` from now on. Nothing is captured yet."""
        self._ops = GpuOps(self._config, cache, self._device)
        self.graphs = DecodeGraphs(
            self._logits,
            max_rows=self._context.max_num_seqs,
            max_blocks=-(-self._max_model_len // self._context.block_size),
            block_size=self._context.block_size,
            kv_heads=self._config.num_kv_heads,
            device=self._device,
        )

    @torch.inference_mode()
    def compute(self, batch: Batch) -> Computed:
        """Compute a step: everything is enqueued, nothing waited for."""
        if self.graphs.fits(batch):
            logits, table_rows = self.graphs.run(batch, self._staging)
            return Computed(logits=logits, table_rows=table_rows, prompts=PromptStates(logits[:0], 0, self._head))
        wanted = np.concatenate([batch.output_rows, batch.embedded_rows])
        token_ids, token_rows, positions, slots, rows, table_rows = self._staging.send(
            [batch.token_ids, batch.token_rows, batch.positions, batch.slots, wanted, batch.table_rows[batch.sampled]]
        )
        config = self._config
        plan = plan_attention(
            batch,
            self._staging,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            dtype=self._dtype,
        )
        hidden = self._hidden(StepInputs(token_ids, token_rows, positions, slots, plan), rows)
        sampled, outputs = len(batch.sampled), len(batch.output_rows)
        return Computed(
            logits=self._head(hidden[:sampled]),
            table_rows=table_rows,
            prompts=PromptStates(hidden[sampled:], outputs - sampled, self._head),
        )

    @torch.inference_mode()
    def remember(self, computed: Computed, token_ids: torch.Tensor) -> None:
        """Have the next step compute `token_ids` [R], or token 0 where there is none."""
        self._sampled[computed.table_rows] = token_ids.clamp_min(0).to(torch.int32)

    def _logits(self, inputs: StepInputs) -> torch.Tensor:
        """Those of every row."""
        rows = torch.arange(len(inputs.token_ids), dtype=torch.int32, device=self._device)
        return self._head(self._hidden(inputs, rows))

    def _hidden(self, inputs: StepInputs, rows: torch.Tensor) -> torch.Tensor:
        sampled = self._sampled.index_select(0, inputs.table_rows)
        token_ids = torch.where(inputs.token_ids < 0, sampled, inputs.token_ids)
        self._ops.begin(inputs)
        return self._model(token_ids, inputs.positions, rows, self._ops)

    @torch.inference_mode()
    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.logits(hidden, self._ops)

"""A model of transformers' own modules, over flattened batches and paged KV caches."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

from corelm.api import Progress
from corelm_torch.config import ModelShape
from corelm_torch.models.model import Keep
from corelm_torch.models.transformers_attention import PAGED, PagedAnswers, answering
from corelm_torch.models.transformers_trace import Trace
from corelm_torch.models.transformers_weights import empty_model, load_model
from corelm_torch.ops import Ops


class TransformersModel:
    """See `corelm_torch.models.Model`. Of an executor's `Ops`, it calls attention alone."""

    capturable = False
    _trunk: nn.Module

    def __init__(
        self, path: Path, config: PreTrainedConfig, shape: ModelShape, trace: Trace, dtype: torch.dtype
    ) -> None:
        self._path, self._config, self._shape, self._trace, self._dtype = path, config, shape, trace, dtype
        self._model = empty_model(config, dtype=dtype, attn_implementation=PAGED)

    def parameters(self) -> Iterator[nn.Parameter]:
        return self._model.parameters()

    def load(self, *, max_model_len: int, device: torch.device, progress: Progress, keep: Keep | None = None) -> None:
        """See `corelm_torch.models.Model`. Nothing is asked of `keep`: linear layers are transformers'."""
        self._model = load_model(self._path, self._config, dtype=self._dtype, device=device, progress=progress)
        _fix_frequencies(self._model, max_model_len)
        self._trunk = self._model.get_submodule(self._trace.trunk)

    def __call__(self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, ops: Ops) -> torch.Tensor:
        tokens, places = token_ids.long()[None], positions.long()[None]  # some gather by them
        with answering(PagedAnswers(ops, self._shape, self._trace.layers)):
            output = self._trunk(input_ids=tokens, position_ids=places, use_cache=False)
        hidden: torch.Tensor = output.last_hidden_state[0].index_select(0, rows)
        return hidden

    def logits(self, hidden: torch.Tensor, ops: Ops) -> torch.Tensor:
        """Whatever the model makes of hidden states: the output layer, and what is done to its logits."""
        tokens = torch.zeros(1, len(hidden), dtype=torch.int64, device=hidden.device)
        with _replaced(self._trunk, self._trace.output(last_hidden_state=hidden[None])):
            logits: torch.Tensor = self._model(input_ids=tokens, use_cache=False).logits[0]
        return logits.float()


@contextmanager
def _replaced(module: nn.Module, output: ModelOutput) -> Iterator[None]:
    """Within this block, `module` computes nothing and returns `output`."""
    module.forward = lambda *_, **__: output
    try:
        yield
    finally:
        del module.forward


def _fix_frequencies(model: PreTrainedModel, max_model_len: int) -> None:
    """Choose LongRoPE's frequencies once, for the longest context.

    transformers chooses in every step, by its longest context, so that neighbours would change each other's tokens.
    """
    module: Any
    for module in model.modules():
        if getattr(module, "rope_type", None) == "longrope":
            last = torch.tensor([[max_model_len - 1]], device=model.device)
            module(torch.empty(0, dtype=model.dtype, device=model.device), last)
            module.rope_type = "fixed"

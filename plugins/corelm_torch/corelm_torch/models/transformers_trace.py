"""What a model of transformers is like, seen by running it without numbers: on the meta device."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from corelm_torch.models.transformers_attention import (
    AttentionCall,
    LayerAttention,
    UnsupportedAttentionError,
    answering,
)

NOT_THROUGH_INTERFACE = "attention that does not go through transformers' interface, or none at all"
_TOKENS = 3
_MIXING = (nn.Conv1d, nn.RNNBase)
"""Modules that look at neighbouring tokens, or keep a state from one to the next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """What a run of the model showed."""

    trunk: str
    """Name of the submodule that makes hidden states of tokens; the output layer comes after it."""
    output: type[ModelOutput]
    """What it returns them in, as ``last_hidden_state``."""
    width: int
    """Of its hidden states."""
    vocab_size: int
    layers: tuple[LayerAttention, ...]


class _Tracer:
    """Answers with empty tensors and takes down what it is asked; see `transformers_attention.Answers`."""

    def __init__(self) -> None:
        self.layers: list[LayerAttention] = []
        self._modules: list[nn.Module] = []
        self._masks: list[tuple[torch.Tensor, int | None]] = []

    def attend(self, call: AttentionCall) -> torch.Tensor:
        _, heads, tokens, key_dim = call.q.shape
        _, kv_heads, _, value_dim = call.v.shape
        layer = LayerAttention(
            heads=heads,
            kv_heads=kv_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            window=self._window(call),
            softcap=call.softcap,
        )
        if tokens != _TOKENS or call.k.shape != (1, kv_heads, _TOKENS, key_dim) or call.v.shape[2] != _TOKENS:
            raise UnsupportedAttentionError("queries, keys and values that are not of the same tokens and heads")
        if call.module in self._modules[:-1]:  # what it sees the second time, with a cache, is up to the model
            raise UnsupportedAttentionError("layers that run several times")
        if call.module not in self._modules:
            self._modules.append(call.module)
        self.layers.append(layer)
        return torch.empty(1, _TOKENS, heads, value_dim, dtype=call.q.dtype, device=call.q.device)

    def _window(self, call: AttentionCall) -> int | None:
        if call.mask is None:
            if not call.causal:
                raise UnsupportedAttentionError("attention to tokens that come later")
            return call.window
        windows = [window for mask, window in self._masks if mask is call.mask]
        if not windows:
            raise UnsupportedAttentionError("masks of the model's own, or a bias on scores")
        if call.window not in (None, windows[0]):
            raise UnsupportedAttentionError(f"a window of {call.window} under a mask with one of {windows[0]}")
        return windows[0]

    def mask(self, visible: Any, size: int | None) -> torch.Tensor:
        if not _is_window(visible, size):
            raise UnsupportedAttentionError("a mask that is neither causal nor a sliding window")
        self._masks.append((torch.empty(1, 1, _TOKENS, _TOKENS, device="meta"), size))
        return self._masks[-1][0]


def _is_window(visible: Any, size: int | None) -> bool:
    """Whether tokens see exactly those before them, themselves, and if there is a `size` only so many in all."""
    far = size or 1
    queries = torch.tensor([0, 1, 2, far - 1, far, far + 1, 3 * far + 7, 1_000_003])
    back = torch.tensor([-far, -1, 0, 1, 2, far - 1, far, far + 1, 2 * far])
    q, k = (queries + 0 * back[:, None]), queries - back[:, None]
    expected = (k <= q) if size is None else (k <= q) & (k > q - size)
    try:
        seen = visible(torch.tensor(0), torch.tensor(0), q, k)
    except (RuntimeError, NotImplementedError, IndexError, TypeError):  # it asks for more than places
        return False
    return bool(((seen == expected) | (k < 0)).all())


def trace(model: PreTrainedModel) -> Trace:
    """Run `model`, which is on the meta device and has the attention `transformers_attention.TRACED`.

    Raises `UnsupportedAttentionError` if executors cannot run it.
    """
    tracer, trunks = _Tracer(), _watch_trunks(model)
    tokens = torch.zeros(1, _TOKENS, dtype=torch.int64, device="meta")
    with torch.inference_mode(), answering(tracer):
        logits = model(input_ids=tokens, position_ids=tokens, attention_mask=tokens + 1, use_cache=False).logits
    if not tracer.layers:
        raise UnsupportedAttentionError(NOT_THROUGH_INTERFACE)
    if len(tracer.layers) < model.config.num_hidden_layers:
        raise UnsupportedAttentionError("layers without attention")
    name, output = trunks[-1]
    _check_modules(model.get_submodule(name))
    return Trace(
        trunk=name,
        output=type(output),
        width=output.last_hidden_state.shape[-1],
        vocab_size=logits.shape[-1],
        layers=tuple(tracer.layers),
    )


def _watch_trunks(model: PreTrainedModel) -> list[tuple[str, Any]]:
    """Submodules that will have made hidden states, the outermost last, with their output."""
    found: list[tuple[str, Any]] = []
    for name, module in model.named_modules():
        if isinstance(module, PreTrainedModel) and module is not model:

            def done(_: nn.Module, __: Any, output: Any, name: str = name) -> None:
                if hasattr(output, "last_hidden_state"):
                    found.append((name, output))

            module.register_forward_hook(done)
    return found


def _check_modules(trunk: nn.Module) -> None:
    if "position_ids" not in inspect.signature(trunk.forward).parameters:
        raise UnsupportedAttentionError("positions that the model makes up itself")
    if any(isinstance(module, _MIXING) for module in trunk.modules()):
        raise UnsupportedAttentionError("layers with a state, or that look at neighbouring tokens")

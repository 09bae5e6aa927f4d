"""The attention of transformers' models, through the interface that transformers has for it.

A model that was made with `PAGED` or `TRACED` as its attention implementation leaves its attention to whoever is
`answering` while it runs.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface

from corelm_torch.config import ModelShape
from corelm_torch.ops import Ops

PAGED = "corelm"
"""Over an executor's KV cache. No masks are made: which tokens go together is known to the executor alone."""
TRACED = "corelm-traced"
"""The same, with masks: for looking at what a model does."""

_WITHOUT_EFFECT = "position_ids"
"""An option that attention functions get, but that changes nothing in what they compute."""


class UnsupportedAttentionError(Exception):
    """A model asks for attention that executors do not have; says what it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerAttention:
    """What a layer's attention is like, as far as it is the same in every step."""

    heads: int
    kv_heads: int
    key_dim: int
    """Of a head's queries and keys."""
    value_dim: int
    """Of a head's values and results."""
    window: int | None
    softcap: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionCall:
    """`q` is [1, heads, M, key_dim], `k` [1, KV heads, M, key_dim], `v` [1, KV heads, M, value_dim]."""

    module: nn.Module
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor | None
    causal: bool
    """Without a mask, tokens see none that come after them."""
    scale: float | None
    softcap: float | None
    window: int | None
    """What the layer says of itself. Some say nothing, but get a mask with a window."""


class Answers(Protocol):
    """What stands behind the interface."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """[1, M, heads, value_dim]"""

    def mask(self, visible: Any, size: int | None) -> torch.Tensor:
        """What layers get as their mask, if tokens see what transformers' mask function `visible` says.

        `size` is that of its windows, if it has some.
        """


_answers: ContextVar[Answers] = ContextVar("answers")


@contextmanager
def answering(answers: Answers) -> Iterator[None]:
    """Models that run within this block, in this thread, have their attention from `answers`."""
    token = _answers.set(answers)
    try:
        yield
    finally:
        _answers.reset(token)


class PagedAnswers:
    """One step over an executor's KV cache; layers are numbered as they call.

    The cache has as many heads for each layer, and keys as wide as values: what a model has less is filled up.
    """

    def __init__(self, ops: Ops, shape: ModelShape, layers: tuple[LayerAttention, ...]) -> None:
        """`shape` is what the executor was told of the `layers`."""
        self._ops, self._shape, self._layers = ops, shape, layers
        self._calls = 0

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Raises `UnsupportedAttentionError` if a layer is not what it was when the model was traced."""
        number, self._calls = self._calls, self._calls + 1
        known = self._layers[number]
        if call.softcap != known.softcap or call.window not in (None, known.window):
            raise UnsupportedAttentionError(f"attention of layer {number} is not {known} any more")
        scale = known.key_dim**-0.5 if call.scale is None else call.scale
        output = self._ops.attention(
            number,
            self._filled(call.q, call.q.shape[1]),
            self._filled(call.k, self._shape.num_kv_heads),
            self._filled(call.v, self._shape.num_kv_heads),
            scale=None if scale == self._shape.head_dim**-0.5 else scale,
        )
        return output.view(1, len(output), known.heads, -1)[..., : known.value_dim]

    def _filled(self, states: torch.Tensor, heads: int) -> torch.Tensor:
        """[M, heads, head_dim] of `states` [1, fewer heads, M, less]: heads several times, dimensions with zeros."""
        states = states[0].transpose(0, 1)
        if heads > states.shape[1]:
            states = states.repeat_interleave(heads // states.shape[1], 1)
        missing = self._shape.head_dim - states.shape[2]
        return functional.pad(states, (0, missing)) if missing else states.contiguous()

    def mask(self, visible: Any, size: int | None) -> torch.Tensor:
        raise UnsupportedAttentionError("a mask was made in a step")


def _attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    is_causal: bool | None = None,
    scaling: float | None = None,
    softcap: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls, with whatever options a model has for its attention."""
    _refuse_options(options)
    call = AttentionCall(
        module=module,
        q=query,
        k=key,
        v=value,
        mask=attention_mask,
        causal=getattr(module, "is_causal", True) if is_causal is None else is_causal,
        scale=scaling,
        softcap=softcap,
        window=sliding_window,
    )
    return _answers.get().attend(call), None


def _refuse_options(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        off = value is None or (isinstance(value, bool | int | float) and not value)
        if not off and name != _WITHOUT_EFFECT:
            raise UnsupportedAttentionError(f"attention with {name}")


def _mask(*, mask_function: Any, local_size: int | None = None, **_: Any) -> torch.Tensor:
    return _answers.get().mask(mask_function, local_size)


for _name in (PAGED, TRACED):
    AttentionInterface.register(_name, _attention)
AttentionMaskInterface.register(TRACED, _mask)

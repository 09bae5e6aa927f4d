"""What an executor may rely on of any model."""

from collections.abc import Callable, Iterator
from typing import Protocol

import torch

from corelm.api import Progress
from corelm_torch.ops import Ops
from corelm_torch.weights import Weight

Keep = Callable[[Weight], object | None]
"""What an executor keeps of the weight of a linear layer in place of a tensor of its numbers; None for the tensor."""


class Model(Protocol):
    """A model, made without memory for its weights. `load` it before the first step."""

    capturable: bool
    """Whether a step does the same whatever the numbers in it are, so that a device can record and repeat it."""

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """All of them, on the meta device before they are loaded."""

    def load(self, *, max_model_len: int, device: torch.device, progress: Progress, keep: Keep | None = None) -> None:
        """Read the weights, and prepare for positions below `max_model_len`. Raises `ModelLoadError`."""

    def __call__(self, token_ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor, ops: Ops) -> torch.Tensor:
        """Final hidden states [len(rows), hidden_size] of `rows`, of the M tokens given by id and position."""

    def logits(self, hidden: torch.Tensor, ops: Ops) -> torch.Tensor:
        """Logits [rows, vocab_size], in float32, of such states."""

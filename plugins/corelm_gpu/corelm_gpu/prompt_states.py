"""What is asked of whole prompts, brought to the host when it is asked for."""

from collections.abc import Callable

import torch
from corelm_torch.arrays import Floats


class PromptStates:
    """See `corelm_torch.outputs.PromptOutputs`."""

    def __init__(self, hidden: torch.Tensor, scored: int, head: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """`hidden` are states [rows, hidden size]: `scored` ones of which `head` makes logits, then the embedded."""
        self._hidden, self._scored, self._head = hidden, scored, head

    @property
    def hidden(self) -> Floats:
        return _on_host(self._hidden[self._scored :])

    def score(self, part: slice) -> Floats:
        return _on_host(self._head(self._hidden[: self._scored][part]))


def _on_host(values: torch.Tensor) -> Floats:
    floats: Floats = values.float().cpu().numpy()
    return floats

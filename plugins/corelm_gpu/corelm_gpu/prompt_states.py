"""What is asked of whole prompts, brought to the host when it is asked for."""

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
import torch
from corelm_torch.arrays import Floats
from corelm_torch.batch import ScoredRows

from corelm.api import TokenLogprobs
from corelm_gpu.sampling.scores import Scores


class PromptStates:
    """See `corelm_torch.outputs.PromptOutputs`."""

    def __init__(self, hidden: torch.Tensor, scored: int, head: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """`hidden` are states [rows, hidden size]: `scored` ones of which `head` makes logits, then the embedded."""
        self._hidden, self._scored, self._head = hidden, scored, head

    @property
    def hidden(self) -> Floats:
        floats: Floats = self._hidden[self._scored :].float().cpu().numpy()
        return floats

    def scores(self, scored: ScoredRows, part: slice) -> Iterator[TokenLogprobs | None]:
        try:
            return self._scores(scored, part)
        except torch.OutOfMemoryError:
            if part.stop - part.start == 1:
                raise
        torch.cuda.empty_cache()
        middle = (part.start + part.stop) // 2
        return chain.from_iterable(
            self.scores(scored, half) for half in (slice(part.start, middle), slice(middle, part.stop))
        )

    def _scores(self, scored: ScoredRows, part: slice) -> Iterator[TokenLogprobs | None]:
        token_ids, counts = scored.token_ids[part], scored.top[part]
        logits = self._head(self._hidden[: self._scored][part])
        tokens, sent = (torch.from_numpy(values).to(logits.device) for values in (token_ids, counts.astype(np.int32)))
        return Scores(logits, tokens, sent, counts).wait(token_ids)

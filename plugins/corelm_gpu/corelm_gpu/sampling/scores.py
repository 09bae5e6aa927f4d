"""Log-probabilities, computed on the device."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from corelm_torch.arrays import Ints
from corelm_torch.logprobs import from_sums

from corelm.api import TokenLogprobs
from corelm_gpu.kernels.token_scores import TOTALS, score_tokens
from corelm_gpu.sampling.download import Download


class Scores:
    """The log-probabilities of tokens, and of those that are the most probable ones in their place."""

    def __init__(self, logits: torch.Tensor, tokens: torch.Tensor, sent: torch.Tensor, counts: Ints) -> None:
        """Enqueue the scoring of `tokens` [L], int64, by `logits` [L, vocabulary], each with ``counts[l]`` others.

        The device has the counts as `sent`, int32.
        """
        most = min(int(counts.max()), logits.shape[1])
        scores = torch.empty(len(logits), TOTALS + 2 * most, dtype=torch.int32, device=logits.device)
        score_tokens(logits, tokens, sent, scores).run()
        self._counts = np.minimum(counts, most)
        self._most = most
        self._download = Download(scores)

    def wait(self, token_ids: Ints) -> Iterator[TokenLogprobs | None]:
        """For each of the tokens, which are known by now; None where logits are no distribution."""
        scores = self._download.wait()
        floats = scores.view(np.float32)
        first, second = TOTALS, TOTALS + self._most
        for row, (token_id, count) in enumerate(zip(token_ids.tolist(), self._counts.tolist(), strict=True)):
            peak, total, chosen = floats[row, :3].tolist()
            if math.isnan(peak):
                yield None
                continue
            yield from_sums(
                token_id,
                normaliser=peak + math.log(total),
                chosen=chosen,
                higher=int(scores[row, 3]),
                top_ids=scores[row, first : first + count].tolist(),
                top_logits=floats[row, second : second + count].tolist(),
            )

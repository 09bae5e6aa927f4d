"""Sampling of a step's tokens, which stay on the device; the host is told of them later."""

from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from corelm_torch.batch import Batch
from corelm_torch.step import SampledTokens, of_all_rows, of_detailed_rows

from corelm_gpu.kernels.sample import PARAMETERS, pack_parameters, sample
from corelm_gpu.sampling.download import Download
from corelm_gpu.sampling.edits import device_edits
from corelm_gpu.sampling.processing import process_rows
from corelm_gpu.sampling.scores import Scores
from corelm_gpu.staging import Staging


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """The tokens of R rows, which were or will be sampled."""

    token_ids: torch.Tensor
    """[R] on the device, int64; -1 where no maximum is finite."""
    batch: Batch
    outcomes: Download
    """[2, R]: the tokens, and 1 for rows of nothing but -inf."""
    failed: dict[int, str]
    """By detailed row: why a logits processor failed."""
    scores: Scores | None
    """Of the rows that asked for log-probabilities."""

    def wait(self) -> SampledTokens:
        """The tokens, errors and log-probabilities, once the device has them."""
        token_ids, empty = self.outcomes.wait()
        details = self.batch.details
        detailed = token_ids[details.indices]
        bare = set(np.flatnonzero(empty[details.indices]).tolist())
        scores = [] if self.scores is None else self.scores.wait(detailed[details.reported])
        return of_all_rows(self.batch, token_ids, of_detailed_rows(details, detailed, bare, self.failed, scores))


class DeviceSampler:
    """Samples from logits on the device, and edits them there."""

    def __init__(self, *, vocab_size: int, device: torch.device) -> None:
        self._vocab_size = vocab_size
        self._device = device
        self._staging = Staging(device)
        self._greedy = torch.zeros(0, PARAMETERS, dtype=torch.int32, device=device)

    @torch.inference_mode()
    def sample(self, logits: torch.Tensor, batch: Batch) -> Sampling:
        """Enqueue the sampling of ``batch.sampled`` from `logits` [R, vocabulary], float32, which are edited.

        Waits for nothing, unless logits processors run on the host.
        """
        outcomes = torch.empty(2, len(logits), dtype=torch.int64, device=self._device)
        if len(batch.detailed):
            failed, scores = self._sample_detailed(logits, batch, outcomes)
        else:
            sample(logits, self._greedy_parameters(len(logits)), outcomes).run()
            failed, scores = {}, None
        return Sampling(token_ids=outcomes[0], batch=batch, outcomes=Download(outcomes), failed=failed, scores=scores)

    def _sample_detailed(
        self, logits: torch.Tensor, batch: Batch, outcomes: torch.Tensor
    ) -> tuple[dict[int, str], Scores | None]:
        details = batch.details
        edits = device_edits(details, self._vocab_size)
        counts = details.sampling.logprobs[details.reported]
        own = pack_parameters(details, len(logits)), details.indices[details.reported], counts
        parameters, reported, sent_counts, *rest = self._staging.send(
            [*own, *(array for edit in edits for array in edit.arrays)]
        )
        unedited = logits.index_select(0, reported) if len(counts) else None
        sent = iter(rest)
        for edit in edits:
            edit.apply(logits, *islice(sent, len(edit.arrays)))
        failed = process_rows(logits, details) if details.processing else {}
        sample(logits, parameters, outcomes).run()
        if unedited is None:
            return failed, None
        return failed, Scores(unedited, outcomes[0].index_select(0, reported), sent_counts, counts)

    def _greedy_parameters(self, rows: int) -> torch.Tensor:
        """For rows of which nothing but the most probable token is asked."""
        if len(self._greedy) < rows:
            self._greedy = torch.zeros(2 * rows, PARAMETERS, dtype=torch.int32, device=self._device)
        return self._greedy[:rows]

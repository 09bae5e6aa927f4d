"""From the hidden states of a step to its result: sampled tokens, log-probabilities and failures."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from corelm.api import StepPlan, StepResult, TokenLogprobs
from corelm_torch.arrays import Ints
from corelm_torch.batch import Batch, ScoredRows
from corelm_torch.logprobs import token_logprobs
from corelm_torch.sampler import sample

NOT_FINITE = "the model computed no finite scores for the next token"
ALL_MASKED = "allowed_token_ids, bad_words and min_tokens together leave no token that could be sampled"
ALL_PROCESSED = "no token is left that could be sampled after the logits processors of the request"
SCORED_ROWS = 128
"""Prompt tokens that are scored at a time, so that a long prompt does not need the memory of all its logits."""

Head = Callable[[torch.Tensor], torch.Tensor]
"""Logits [rows, vocabulary], in float32, of hidden states [rows, hidden size]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledTokens:
    """What was sampled for the R slices of ``batch.sampled``."""

    token_ids: Ints
    """[R]; an id means nothing where there is an error."""
    errors: dict[int, str]
    """By index."""
    logprobs: dict[int, TokenLogprobs]
    """By index, where they were asked for."""


def finish_step(plan: StepPlan, batch: Batch, hidden: torch.Tensor, head: Head) -> tuple[StepResult, Ints]:
    """The result of a step, for the hidden states of ``batch.output_rows``, and the ids for `SequenceTable.append`."""
    sampled = sample_tokens(head(hidden[: len(batch.sampled)]), batch)
    prompt_logprobs: dict[int, list[TokenLogprobs]] = {}
    errors: dict[int, str] = {}
    if batch.scored is not None:
        prompt_logprobs, errors = score_prompts(hidden[len(batch.sampled) :], batch.scored, head)
    token_ids: list[list[int]] = [[] for _ in plan.slices]
    logprobs: dict[int, list[TokenLogprobs]] = {}
    for index, (slice_index, token) in enumerate(zip(batch.sampled.tolist(), sampled.token_ids.tolist(), strict=True)):
        seq_id = plan.slices[slice_index].seq_id
        if index in sampled.errors:
            errors[seq_id] = sampled.errors[index]
        elif seq_id not in errors:
            token_ids[slice_index].append(token)
            if index in sampled.logprobs:
                logprobs[seq_id] = [sampled.logprobs[index]]
    result = StepResult(
        step_id=plan.step_id, token_ids=token_ids, logprobs=logprobs, prompt_logprobs=prompt_logprobs, errors=errors
    )
    return result, sampled.token_ids


def sample_tokens(logits: torch.Tensor, batch: Batch) -> SampledTokens:
    """Edit `logits` [R, vocabulary], in place, and sample from each row."""
    reported = np.flatnonzero(batch.sampling.logprobs >= 0)
    if len(reported) < len(logits) or batch.edits or batch.processing:
        unedited = logits.index_select(0, torch.from_numpy(reported).to(logits.device))
    else:
        unedited = logits
    for edit in batch.edits:
        edit.apply(logits)
    errors: dict[int, str] = {}
    for processing in batch.processing:
        errors |= processing.apply(logits)
    token_ids, failed = sample(logits, batch.sampling)
    for index in np.flatnonzero(failed).tolist():
        errors.setdefault(index, _why_nothing_is_left(logits[index], batch, index))
    logprobs = {}
    scores = token_logprobs(unedited, token_ids[reported], batch.sampling.logprobs[reported])
    for index, score in zip(reported.tolist(), scores, strict=True):
        if score is None:
            errors.setdefault(index, NOT_FINITE)
        else:
            logprobs[index] = score
    return SampledTokens(token_ids=token_ids, errors=errors, logprobs=logprobs)


def _why_nothing_is_left(logits: torch.Tensor, batch: Batch, index: int) -> str:
    """The reason why no token can be sampled from edited `logits` [vocabulary], those of row `index`."""
    if any(index in processing.indices for processing in batch.processing):
        return ALL_PROCESSED
    return ALL_MASKED if batch.edits and bool((logits == -torch.inf).all()) else NOT_FINITE


def score_prompts(
    hidden: torch.Tensor, scored: ScoredRows, head: Head
) -> tuple[dict[int, list[TokenLogprobs]], dict[int, str]]:
    """The log-probabilities of prompt tokens by sequence, and the sequences for which there are none, with the reason.

    `hidden` [P, hidden size] are the states of ``scored.rows``.
    """
    logprobs: dict[int, list[TokenLogprobs]] = defaultdict(list)
    errors: dict[int, str] = {}
    for first in range(0, len(hidden), SCORED_ROWS):
        part = slice(first, first + SCORED_ROWS)
        scores = token_logprobs(head(hidden[part]), scored.token_ids[part], scored.top[part])
        for seq_id, score in zip(scored.seq_ids[part].tolist(), scores, strict=True):
            if score is None:
                errors[seq_id] = NOT_FINITE
            else:
                logprobs[seq_id].append(score)
    return {seq_id: found for seq_id, found in logprobs.items() if seq_id not in errors}, errors

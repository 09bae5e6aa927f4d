"""From what a step computed to its result: sampled tokens, log-probabilities and failures."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from corelm.api import StepPlan, StepResult, TokenLogprobs
from corelm_torch.arrays import Floats, Ints
from corelm_torch.batch import Batch, ScoredRows
from corelm_torch.details import Details
from corelm_torch.logprobs import token_logprobs
from corelm_torch.outputs import PromptOutputs, StepOutputs
from corelm_torch.sampler import sample

CAPABILITIES = frozenset(
    {
        "prefix_cache",
        "copy_blocks",
        "logprobs",
        "penalties",
        "token_masks",
        "logits_processors",
        "grammar",
        "embeddings",
    }
)
"""Of executors that keep a `SequenceTable`, end steps with `finish_step`, and copy the blocks of a plan."""
NOT_FINITE = "the model computed no finite scores for the next token"
ALL_MASKED = (
    "structured_output, allowed_token_ids, bad_words and min_tokens together leave no token that could be sampled"
)
ALL_PROCESSED = "no token is left that could be sampled after the logits processors of the request"
NO_EMBEDDING = "the model computed no finite embedding"
SCORED_ROWS = 128
"""Prompt tokens that are scored at a time, so that a long prompt does not need the memory of all its logits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledTokens:
    """What was sampled for some rows."""

    token_ids: Ints
    """-1, or an id that means nothing, where there is an error."""
    errors: dict[int, str]
    """By row."""
    logprobs: dict[int, TokenLogprobs]
    """By row, where they were asked for."""


NOTHING = SampledTokens(token_ids=np.zeros(0, np.int64), errors={}, logprobs={})


def finish_step(plan: StepPlan, batch: Batch, outputs: StepOutputs) -> tuple[StepResult, Ints]:
    """The result of a step of which `outputs` were computed, and the ids for `SequenceTable.append`."""
    sampled = sample_tokens(batch, outputs)
    return step_result(plan, batch, sampled, outputs), sampled.token_ids


def step_result(plan: StepPlan, batch: Batch, sampled: SampledTokens, outputs: PromptOutputs) -> StepResult:
    """The result of a step of which `sampled` and `outputs` are known."""
    prompt_logprobs: dict[int, list[TokenLogprobs]] = {}
    errors: dict[int, str] = {}
    if batch.scored is not None:
        prompt_logprobs, errors = score_prompts(batch.scored, outputs)
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
    embeddings: dict[int, bytes] = {}
    if len(batch.embedded):
        embeddings, failed = embed([plan.slices[index].seq_id for index in batch.embedded.tolist()], outputs.hidden)
        errors |= failed
    return StepResult(
        step_id=plan.step_id,
        token_ids=token_ids,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        embeddings=embeddings,
        errors=errors,
    )


def sample_tokens(batch: Batch, outputs: StepOutputs) -> SampledTokens:
    """The next tokens of ``batch.sampled``."""
    detailed = sample_detailed(outputs.logits, batch.details) if len(batch.detailed) else NOTHING
    token_ids = outputs.best.copy()
    token_ids[batch.detailed] = detailed.token_ids
    return of_all_rows(batch, token_ids, detailed)


def of_all_rows(batch: Batch, token_ids: Ints, detailed: SampledTokens) -> SampledTokens:
    """What was sampled for all R rows, of which `token_ids` [R] are known, and the rest of `detailed` ones."""
    indices = batch.detailed.tolist()
    errors = dict.fromkeys(np.flatnonzero(token_ids < 0).tolist(), NOT_FINITE)
    return SampledTokens(
        token_ids=token_ids,
        errors=errors | {indices[row]: why for row, why in detailed.errors.items()},
        logprobs={indices[row]: score for row, score in detailed.logprobs.items()},
    )


def sample_detailed(logits: Floats, details: Details) -> SampledTokens:
    """Edit `logits` [D, vocabulary], in place, and sample from each row."""
    sampling = details.sampling
    reported = details.reported
    untouched = len(reported) == len(logits) and not details.edits and not details.processing
    unedited = logits if untouched else logits[reported]
    for edit in details.edits:
        edit.apply(logits)
    errors: dict[int, str] = {}
    for processing in details.processing:
        errors |= processing.apply(logits)
    token_ids = sample(logits, sampling)
    empty = {row for row in np.flatnonzero(token_ids < 0).tolist() if (logits[row] == -np.inf).all()}
    scores = token_logprobs(unedited, token_ids[reported], sampling.logprobs[reported])
    return of_detailed_rows(details, token_ids, empty, errors, scores)


def of_detailed_rows(
    details: Details,
    token_ids: Ints,
    empty: set[int],
    failed: dict[int, str],
    scores: Iterable[TokenLogprobs | None],
) -> SampledTokens:
    """What was sampled for the D detailed rows, of which `token_ids` [D] are known.

    After edits there is nothing but -inf in those that are `empty`, processors `failed` for some, and those that asked
    for log-probabilities have `scores`.
    """
    errors = dict(failed)
    for row in np.flatnonzero(token_ids < 0).tolist():
        errors.setdefault(row, _why_nothing_is_left(details, row, empty=row in empty))
    logprobs = {}
    for row, score in zip(details.reported.tolist(), scores, strict=True):
        if score is None:
            errors.setdefault(row, NOT_FINITE)
        else:
            logprobs[row] = score
    return SampledTokens(token_ids=token_ids, errors=errors, logprobs=logprobs)


def _why_nothing_is_left(details: Details, row: int, *, empty: bool) -> str:
    """The reason why no token can be sampled from a detailed row; if it is `empty`, its edited logits are all -inf."""
    if any(row in processing.indices for processing in details.processing):
        return ALL_PROCESSED
    return ALL_MASKED if details.edits and empty else NOT_FINITE


def score_prompts(scored: ScoredRows, outputs: PromptOutputs) -> tuple[dict[int, list[TokenLogprobs]], dict[int, str]]:
    """The log-probabilities of prompt tokens by sequence, and by sequence the reasons why there are none."""
    logprobs: dict[int, list[TokenLogprobs]] = defaultdict(list)
    errors: dict[int, str] = {}
    for first in range(0, len(scored.rows), SCORED_ROWS):
        part = slice(first, min(first + SCORED_ROWS, len(scored.rows)))
        for seq_id, score in zip(scored.seq_ids[part].tolist(), outputs.scores(scored, part), strict=True):
            if score is None:
                errors[seq_id] = NOT_FINITE
            else:
                logprobs[seq_id].append(score)
    return {seq_id: found for seq_id, found in logprobs.items() if seq_id not in errors}, errors


def embed(seq_ids: Sequence[int], hidden: Floats) -> tuple[dict[int, bytes], dict[int, str]]:
    """Embeddings by sequence of their `hidden` states [E, hidden size], and the reasons why there are none."""
    exact = hidden.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1)
    good = np.isfinite(lengths) & (lengths > 0)
    vectors = (exact[good] / lengths[good, None]).astype("<f4")
    numbers = np.array(seq_ids)
    embeddings = {seq_id: vector.tobytes() for seq_id, vector in zip(numbers[good].tolist(), vectors, strict=True)}
    return embeddings, dict.fromkeys(numbers[~good].tolist(), NO_EMBEDDING)

"""Presence, frequency and repetition penalties of single logits."""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch

LOGITS = 1024
"""For one program."""


@triton.jit(do_not_specialize=["count"])
def _penalise(
    logits, rows, places, repetitions, frequencies, presences, count, vocab_size, stride, LOGITS: tl.constexpr
):
    numbers = tl.program_id(0) * LOGITS + tl.arange(0, LOGITS)
    inside = numbers < count
    place = tl.load(places + numbers, mask=inside, other=0)
    row = tl.load(rows + place // vocab_size).to(tl.int64)
    logit = logits + row * stride + place % vocab_size
    score = tl.load(logit, mask=inside, other=0.0)
    repetition = tl.load(repetitions + numbers, mask=inside, other=1.0)
    score = tl.where(score > 0.0, tl.div_rn(score, repetition), score * repetition)
    score -= tl.load(frequencies + numbers, mask=inside, other=0.0)
    score -= tl.load(presences + numbers, mask=inside, other=0.0)
    tl.store(logit, score, mask=inside)


def penalise(
    logits: torch.Tensor,
    rows: torch.Tensor,
    places: torch.Tensor,
    repetitions: torch.Tensor,
    frequencies: torch.Tensor,
    presences: torch.Tensor,
) -> Launch:
    """Edit N of the `logits` [R, vocabulary]: at ``places[n]``, none twice, in the flattened ``logits[rows]``.

    Positive ones are divided by their repetition penalty, others multiplied; then the other two are subtracted. All
    are [N] in float32, places and rows in int32.
    """
    return Launch(
        kernel=_penalise,
        grid=(triton.cdiv(len(places), LOGITS),),
        arguments={
            "logits": logits,
            "rows": rows,
            "places": places,
            "repetitions": repetitions,
            "frequencies": frequencies,
            "presences": presences,
            "count": len(places),
            "vocab_size": logits.shape[1],
            "stride": logits.stride(0),
        },
        constants={"LOGITS": LOGITS},
    )


def penalise_reference(
    logits: torch.Tensor,
    rows: torch.Tensor,
    places: torch.Tensor,
    repetitions: torch.Tensor,
    frequencies: torch.Tensor,
    presences: torch.Tensor,
) -> torch.Tensor:
    """The penalised logits."""
    penalised, vocab_size = logits.clone(), logits.shape[1]
    where = rows.long()[places // vocab_size], places % vocab_size
    scores = torch.where(logits[where] > 0, logits[where] / repetitions, logits[where] * repetitions)
    penalised[where] = scores - frequencies - presences
    return penalised

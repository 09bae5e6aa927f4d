"""Sampling on the device, without sorting: thresholds are found by bisection, as a rule among few candidates.

The rules are those of `corelm_torch.sampler`: temperature, then top_k, then top_p and min_p on what top_k left; tokens
as probable as the last one kept are kept too. A row's draw depends on its logits and its random number alone.
"""

import numpy as np
import numpy.typing as npt
import torch
import triton
import triton.language as tl
from corelm_torch.details import Details
from corelm_torch.sampler import uniform

from corelm_gpu.kernels.highest import (
    MINUS_INF,
    WARPS,
    chunk_of,
    chunk_size,
    gather,
    halfway,
    nth_highest,
    ordered,
    survey,
)
from corelm_gpu.kernels.launch import Launch

PARAMETERS = 5
"""Numbers of 32 bits for each row: see `pack_parameters`."""


@triton.jit
def _weights(x, best, per_temperature, least, min_p):
    """What tokens weigh, of which that of `best` weighs 1; 0 for logits before `least`, and below `min_p`."""
    weights = tl.exp((x - best) * per_temperature)
    return tl.where((ordered(x) >= least) & (weights >= min_p), weights, 0.0)


@triton.jit
def _reaching(source, size, least, best, per_temperature, CHUNK: tl.constexpr):
    """How many logits reach `least` in their order, and what they weigh."""
    counts = tl.zeros((CHUNK,), tl.int32)
    sums = tl.zeros((CHUNK,), tl.float32)
    for start in range(0, size, CHUNK):
        x = chunk_of(source, start, size, CHUNK)
        counts += (ordered(x) >= least).to(tl.int32)
        sums += _weights(x, best, per_temperature, least, 0.0)
    return tl.sum(counts, 0), tl.sum(sums, 0)


@triton.jit
def _narrow(
    source, size, low, high, reaching, above, guess, count, weight, room, best, per_temperature, CHUNK: tl.constexpr
):
    """Bisect to the last place, from `low` to `high` in the order of logits, that `count` of them and `weight` reach.

    If there is none, it is `low`, which `reaching` logits reach; `above` are above `high`. Begins with `guess`, and
    ends when no more than `room` logits are between the two. Returns the first four of these figures as they are then,
    and the weight of those above.
    """
    middle = guess
    heavier = weight * 0.0
    while (low < high) & (reaching - above > room):
        found, mass = _reaching(source, size, middle, best, per_temperature, CHUNK)
        if ((found >= count) & (mass >= weight)) | (middle <= low):
            low = middle
            reaching = found
        else:
            high = middle - 1
            above = found
            heavier = mass
        middle = halfway(low, high)
    return low, high, reaching, above, heavier


@triton.jit
def _negligible(best, temperature, top_p, total, others):
    """The place of a logit that weighs so little that all `others`, weighing no more, are what top_p may leave out."""
    place = ordered(best + tl.log((1.0 - top_p) * total / others) * temperature)
    return tl.maximum(tl.minimum(place, ordered(best)), MINUS_INF + 1)


@triton.jit
def _filter(row, vocab_size, maxima, best, temperature, top_k, top_p, values, ids, CHUNK: tl.constexpr):
    """What those tokens reach that top_k and top_p keep, and whether all of them were copied to `values` and `ids`.

    A `top_k` of the whole vocabulary keeps all.
    """
    per_temperature = 1.0 / temperature
    limited = top_k < vocab_size
    low, end, none = tl.full((), MINUS_INF + 1, tl.int32), ordered(best), tl.full((), 0, tl.int32)
    count, weight, guess = 0, 0.0, low
    if limited:
        count = top_k
        guess = nth_highest(ordered(maxima), top_k, low, end)
    else:
        total = _reaching(row, vocab_size, low, best, per_temperature, CHUNK)[1]
        weight = total * top_p
        # As a rule, no more than CHUNK tokens share what is left out.
        guess = _negligible(best, temperature, top_p, total, CHUNK)
        low = _negligible(best, temperature, top_p, total, vocab_size)
    low, high, reaching, above, heavier = _narrow(
        row, vocab_size, low, end, vocab_size, none, guess, count, weight, CHUNK, best, per_temperature, CHUNK
    )
    if reaching - above <= CHUNK:
        # To be decided about those between the two places alone.
        between = gather(row, vocab_size, low, high, values, ids, CHUNK)
        count, weight, middle = count - above, weight - heavier, halfway(low, high)
        low, _, between, _, _ = _narrow(
            values, CHUNK, low, high, between, none, middle, count, weight, 1, best, per_temperature, CHUNK
        )
        reaching = above + between
    copied = (above == 0) & (reaching <= CHUNK)
    if limited & (top_p < 1.0):
        source, size = row, vocab_size
        if copied:
            source, size = values, CHUNK
        weight = _reaching(source, size, low, best, per_temperature, CHUNK)[1] * top_p
        middle = halfway(low, end)
        low, _, _, _, _ = _narrow(
            source, size, low, end, reaching, none, middle, 0, weight, 1, best, per_temperature, CHUNK
        )
    return low, copied


@triton.jit
def _draw(source, size, best, per_temperature, least, min_p, number, CHUNK: tl.constexpr, CHUNKS: tl.constexpr):
    """The place at which the kept weights, summed up in their order, exceed `number` of their total."""
    chunks, lanes = tl.arange(0, CHUNKS), tl.arange(0, CHUNK)
    sums = tl.zeros((CHUNKS,), tl.float32)
    for start in range(0, size, CHUNK):
        weights = _weights(chunk_of(source, start, size, CHUNK), best, per_temperature, least, min_p)
        sums = tl.where(chunks == start // CHUNK, tl.sum(weights, 0), sums)
    target = tl.sum(sums, 0) * number
    # Rounding may put the target behind the last sum: then the last token is meant.
    beyond = tl.min(tl.where((sums > 0.0) & (tl.cumsum(sums, 0) > target), chunks, CHUNKS), 0)
    chosen = tl.minimum(beyond, tl.max(tl.where(sums > 0.0, chunks, 0), 0))
    target -= tl.sum(tl.where(chunks < chosen, sums, 0.0), 0)
    weights = _weights(chunk_of(source, chosen * CHUNK, size, CHUNK), best, per_temperature, least, min_p)
    beyond = tl.min(tl.where((weights > 0.0) & (tl.cumsum(weights, 0) > target), lanes, CHUNK), 0)
    return chosen * CHUNK + tl.minimum(beyond, tl.max(tl.where(weights > 0.0, lanes, 0), 0))


@triton.jit(do_not_specialize=["rows"])
def _sample(
    logits,
    parameters,
    values,
    ids,
    outcomes,
    vocab_size,
    stride,
    rows,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
):
    index = tl.program_id(0)
    row = logits + index.to(tl.int64) * stride
    maxima, group_ids, broken = survey(row, vocab_size, CHUNK)
    best = tl.max(maxima, 0)
    token = tl.min(tl.where(maxima == best, group_ids, vocab_size), 0)
    finite = (broken == 0) & (best > float("-inf")) & (best < float("inf"))
    parameters += index * 5
    temperature = tl.load(parameters).to(tl.float32, bitcast=True)
    if finite & (temperature > 0.0):
        top_k = tl.load(parameters + 1)
        top_k = tl.where(top_k > 0, tl.minimum(top_k, vocab_size), vocab_size)
        top_p = tl.load(parameters + 2).to(tl.float32, bitcast=True)
        min_p = tl.load(parameters + 3).to(tl.float32, bitcast=True)
        number = tl.load(parameters + 4).to(tl.float32, bitcast=True)
        values += index * CHUNK
        ids += index * CHUNK
        source, size, copied, least = row, vocab_size, vocab_size < 0, tl.full((), MINUS_INF + 1, tl.int32)
        if (top_k < vocab_size) | (top_p < 1.0):
            least, copied = _filter(row, vocab_size, maxima, best, temperature, top_k, top_p, values, ids, CHUNK)
        if copied:
            source, size = values, CHUNK
        token = _draw(source, size, best, 1.0 / temperature, least, min_p, number, CHUNK, CHUNKS)
        if copied:
            token = tl.load(ids + token)
    tl.store(outcomes + index, tl.where(finite, token, -1).to(tl.int64))
    tl.store(outcomes + rows + index, ((broken == 0) & (best == float("-inf"))).to(tl.int64))


def pack_parameters(details: Details, rows: int) -> npt.NDArray[np.int32]:
    """The parameters [rows, 5] for `sample`: those of detailed rows, the others are greedy.

    They are the temperature, top_k, top_p, min_p and the random number; all but top_k are bits of float32.
    """
    sampling = details.sampling
    numbers = uniform(sampling.seed, sampling.index)
    floats = np.stack([sampling.temperature, sampling.top_p, sampling.min_p, numbers], axis=1).astype(np.float32)
    packed = np.zeros((rows, PARAMETERS), np.int32)
    packed[details.indices[:, None], [0, 2, 3, 4]] = floats.view(np.int32)
    packed[details.indices, 1] = sampling.top_k
    return packed


def sample(logits: torch.Tensor, parameters: torch.Tensor, outcomes: torch.Tensor) -> Launch:
    """Sample from each row of `logits` [R, vocabulary], float32, by its `parameters`, int32 [R, 5].

    Writes to `outcomes`, int64 [2, R]: the tokens, -1 where no maximum is finite, and 1 where every logit is -inf.
    """
    rows, vocab_size = logits.shape
    chunk = chunk_size(vocab_size)
    values, ids = torch.empty(2, rows, chunk, dtype=torch.int32, device=logits.device)
    return Launch(
        kernel=_sample,
        grid=(rows,),
        arguments={
            "logits": logits,
            "parameters": parameters,
            "values": values.view(torch.float32),
            "ids": ids,
            "outcomes": outcomes,
            "vocab_size": vocab_size,
            "stride": logits.stride(0),
            "rows": rows,
        },
        constants={"CHUNK": chunk, "CHUNKS": triton.next_power_of_2(triton.cdiv(vocab_size, chunk))},
        num_warps=WARPS,
    )

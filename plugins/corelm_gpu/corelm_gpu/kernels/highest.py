"""What is highest in the logits of a row, found in few passes over them: device functions that kernels share.

A row is surveyed in groups, each of which has a highest logit. What as many groups reach as tokens are looked for, at
least as many tokens reach: these few candidates are copied together, and nothing else is looked at from then on.
"""

import triton
import triton.language as tl

CHUNK = 8192
"""Tokens that a row's program looks at together, groups of a row, and candidates that there is room for."""
WARPS = 16
"""Of a program that looks at so many."""
NOTHING = tl.constexpr(-(2**31))
"""Before every float in the order of `ordered`."""
MINUS_INF = tl.constexpr(-2139095041)
"""The place of -inf in that order."""


def chunk_size(vocab_size: int) -> int:
    """The CHUNK for so many tokens."""
    whole: int = triton.next_power_of_2(vocab_size)
    return min(CHUNK, whole)


@triton.jit
def ordered(x):
    """Integers in the order of floats; both zeros are the same."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def chunk_of(source, start, size, CHUNK: tl.constexpr):
    """CHUNK floats from `start` on; -inf behind the end of the source."""
    places = start + tl.arange(0, CHUNK)
    return tl.load(source + places, mask=places < size, other=float("-inf"))


@triton.jit
def survey(row, vocab_size, CHUNK: tl.constexpr):
    """The highest logits of CHUNK groups of tokens, each with its lowest id, and how many logits are not a number.

    The tokens of a group lie CHUNK apart, so that no two threads look at one.
    """
    lanes = tl.arange(0, CHUNK)
    maxima = tl.full((CHUNK,), float("-inf"), tl.float32)
    ids = lanes
    broken = tl.zeros((CHUNK,), tl.int32)
    for start in range(0, vocab_size, CHUNK):
        x = chunk_of(row, start, vocab_size, CHUNK)
        broken += (x != x).to(tl.int32)
        higher = x > maxima
        ids = tl.where(higher, start + lanes, ids)
        maxima = tl.where(higher, x, maxima)
    return maxima, ids, tl.sum(broken, 0)


@triton.jit
def halfway(low, high):
    """The middle of two integers, rounded up, without overflow."""
    return (low | high) - ((low ^ high) >> 1)


@triton.jit
def nth_highest(keys, count, low, high):
    """An integer from `low` to `high` that as many of the `keys` reach as the `count`-th highest; `low` if none is."""
    while low < high:
        middle = halfway(low, high)
        reaching = tl.sum((keys >= middle).to(tl.int32), 0)
        if reaching >= count:
            low = middle
        if reaching <= count:
            high = middle
        if reaching < count:
            high = middle - 1
    return low


@triton.jit
def gather(row, vocab_size, low, high, values, ids, CHUNK: tl.constexpr):
    """Copy the logits from `low` to `high` in their order, and their ids, in the order of these; then comes -inf.

    Returns how many there are. If they are more than CHUNK, the rest is not copied.
    """
    lanes = tl.arange(0, CHUNK)
    count = 0
    for start in range(0, vocab_size, CHUNK):
        columns = start + lanes
        x = chunk_of(row, start, vocab_size, CHUNK)
        keys = ordered(x)
        kept = ((keys >= low) & (keys <= high) & (columns < vocab_size)).to(tl.int32)
        places = count + tl.cumsum(kept, 0) - 1
        room = (kept > 0) & (places < CHUNK)
        tl.store(values + places, x, mask=room)
        tl.store(ids + places, columns, mask=room)
        count += tl.sum(kept, 0)
    tl.store(values + lanes, float("-inf"), mask=lanes >= count)
    tl.debug_barrier()
    return count

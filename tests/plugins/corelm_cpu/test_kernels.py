"""The native kernels against a reference in double precision, at every level this machine can run."""

import gc
import itertools
import threading

import numpy as np
import pytest
import torch
from corelm_cpu.kernels import CACHE_PADDING, KV_KINDS, KernelsMissing, PagedAttention, kernels_name
from levels import LEVELS

TIGHT = {"bf16": 0.03, "int8": 0.03, "f32": 2e-5}
"""Rounding: the output's, of numbers up to 4, and the weights'."""


def missing(level):
    """Why a level cannot be tested, or nothing."""
    try:
        kernels_name(level)
    except KernelsMissing as why:
        return str(why)
    return ""


pytestmark = pytest.mark.skipif(bool(missing(None)), reason=missing(None))


def rounded(array, kv):
    """An array of floats as attention over a cache takes it, floats or the bits of bfloat16, and as doubles."""
    if kv == "f32":
        return np.ascontiguousarray(array), array.astype(np.float64)
    tensor = torch.from_numpy(array).to(torch.bfloat16).contiguous()
    return tensor.view(torch.int16).numpy(), tensor.double().numpy()


def nan_of(array):
    """What is no number among floats or the bits of bfloat16."""
    return np.nan if array.dtype == np.float32 else 0x7FC0


class Case:
    """Random sequences in a cache full of NaNs, written to it in pieces."""

    def __init__(
        self, kv, contexts, *, heads=6, kv_heads=2, head_dim=64, block_size=16, window=None, seed=0, exact=True
    ):
        """`contexts`: for each slice its first position and its length. `exact`: codes of one byte lose nothing."""
        self.kv, self.exact = kv, exact
        self.rng = np.random.default_rng(seed)
        self.starts, self.lengths = (np.array(column, np.int64) for column in zip(*contexts, strict=True))
        self.shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "block_size": block_size}
        self.window = window
        ends = self.starts + self.lengths
        blocks = -(-ends // block_size)
        self.num_blocks = int(blocks.sum()) + 2
        ids = iter(self.rng.permutation(self.num_blocks))
        self.tables = np.full((len(contexts), int(blocks.max())), 2**40, np.int64)
        for table, count in zip(self.tables, blocks, strict=True):
            table[:count] = list(itertools.islice(ids, int(count)))
        self.k, self.v = ([self.draw(end, kv_heads, head_dim) for end in ends] for _ in range(2))
        self.q = [self.draw(length, heads, head_dim) for length in self.lengths]

    def draw(self, *shape):
        array = self.rng.normal(size=shape)
        if self.exact:
            codes = np.rint(array / np.abs(array).max(axis=-1, keepdims=True) * 127)
            array = codes / self.rng.choice([32, 64], size=(*shape[:-1], 1))
        return rounded(array.astype(np.float32), self.kv)

    def slots(self, index, first, last):
        positions, size = np.arange(first, last), self.shape["block_size"]
        return self.tables[index, positions // size] * size + positions % size

    def run(self, level, threads):
        """Attention as the kernels compute it, one array [length, heads, head_dim] of floats a slice."""
        attention = PagedAttention(**self.shape, threads=threads, kv=self.kv, level=level)
        cache = np.full(self.num_blocks * attention.block_bytes + CACHE_PADDING, 255, np.uint8)
        self.write(attention, cache, [(i, 0, start) for i, start in enumerate(self.starts)])
        ends = self.starts + self.lengths
        self.write(attention, cache, [(i, *span) for i, span in enumerate(zip(self.starts, ends, strict=True))])
        queries = np.concatenate([bits for bits, _ in self.q])
        output = np.full(queries.shape, nan_of(queries), queries.dtype)
        attention.attend(
            cache.ctypes.data,
            self.starts,
            self.lengths,
            self.tables,
            self.window,
            queries.ctypes.data,
            output.ctypes.data,
        )
        tensor = torch.from_numpy(output)
        floats = (tensor if self.kv == "f32" else tensor.view(torch.bfloat16)).double().numpy()
        return np.split(floats, np.cumsum(self.lengths)[:-1])

    def write(self, attention, cache, spans):
        """Write positions `first` to `last` - 1 of slices in one call."""
        slots = np.concatenate([self.slots(*span) for span in spans])
        k, v = (np.concatenate([rows[i][0][a:b] for i, a, b in spans]) for rows in (self.k, self.v))
        attention.write(cache.ctypes.data, slots, k.ctypes.data, v.ctypes.data)

    def expected(self, index):
        """The same in double precision."""
        q, k, v = (arrays[index][1] for arrays in (self.q, self.k, self.v))
        k, v = (np.repeat(array, q.shape[1] // array.shape[1], axis=1) for array in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[2])
        distance = np.arange(len(q))[:, None] + self.starts[index] - np.arange(len(k))
        seen = (distance >= 0) & (distance < (self.window or 2**40))
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, v)

    def check(self, level, threads):
        for index, actual in enumerate(self.run(level, threads)):
            assert np.abs(actual - self.expected(index)).max() < TIGHT[self.kv]


DECODE = [(0, 1), (14, 1), (15, 1), (16, 1), (99, 1), (256, 1), (300, 1)]
MIXED = [(0, 1), (0, 17), (31, 1), (16, 33), (5, 7), (250, 40), (511, 1)]
every_level = pytest.mark.parametrize(
    "level",
    [pytest.param(level, marks=pytest.mark.skipif(bool(missing(level)), reason=missing(level))) for level in LEVELS],
)
every_kind = pytest.mark.parametrize("kv", KV_KINDS)


@every_level
@every_kind
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("contexts", [DECODE, MIXED, [(0, 1)], [(700, 1)], [(0, 90)]])
def test_batches_and_threads(level, kv, threads, contexts):
    Case(kv, contexts, seed=threads).check(level, threads)


@every_level
@every_kind
@pytest.mark.parametrize("head_dim", [8, 24, 64, 80, 128, 256])
@pytest.mark.parametrize("block_size", [1, 5, 16, 32, 300])
def test_sizes(level, kv, head_dim, block_size):
    Case(kv, MIXED[:5], head_dim=head_dim, block_size=block_size, seed=head_dim).check(level, 2)


@every_level
@every_kind
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (8, 1), (7, 1), (10, 2), (40, 1)])
def test_grouped_queries(level, kv, heads, kv_heads):
    Case(kv, MIXED, heads=heads, kv_heads=kv_heads, head_dim=32).check(level, 3)


@every_level
@every_kind
@pytest.mark.parametrize("window", [1, 2, 15, 16, 17, 10**6])
@pytest.mark.parametrize("block_size", [5, 16])
def test_windows(level, kv, window, block_size):
    Case(kv, MIXED, window=window, block_size=block_size, seed=window).check(level, 2)


@every_level
@every_kind
def test_a_long_context(level, kv):
    Case(kv, [(9000, 1), (8190, 3)], heads=3, kv_heads=1).check(level, 4)


@every_level
@every_kind
@pytest.mark.parametrize("scale", [0.0, 32.0])
def test_extreme_scores(level, kv, scale):
    """Weights that are all equal, and weights of which one is everything."""
    case = Case(kv, MIXED)
    case.q = [rounded(floats.astype(np.float32) * scale, kv) for _, floats in case.q]
    case.check(level, 2)


@every_level
@every_kind
def test_results_do_not_depend_on_neighbours(level, kv):
    """With one thread a context is never cut."""
    together, alone = Case(kv, MIXED), Case(kv, MIXED[-2:-1])
    alone.k, alone.v, alone.q = ([rows[-2]] for rows in (together.k, together.v, together.q))
    assert (together.run(level, 1)[-2] == alone.run(level, 1)[0]).all()


@every_level
@every_kind
@pytest.mark.parametrize("threads", [1, 3])
def test_a_nan_stays_in_its_sequence(level, kv, threads):
    """One sequence's query, another's key and a third's value are NaNs; nobody else notices."""
    case = Case(kv, [(40, 1)] * 5)
    for rows, sick in ((case.q, 0), (case.k, 1), (case.v, 2)):
        bits, _ = rows[sick]
        bits[..., 3] = nan_of(bits)
    results = case.run(level, threads)
    assert np.isnan(results[0]).all()
    assert np.isnan(results[1]).all()
    assert np.isnan(results[2][..., 3]).all()
    for index in (3, 4):
        assert np.abs(results[index] - case.expected(index)).max() < TIGHT[kv]


@every_level
@pytest.mark.parametrize("contexts", [DECODE, MIXED])
def test_what_codes_cost(level, contexts):
    """Of a scale of 100 %, codes of one byte lose less than 2 %."""
    case = Case("int8", contexts, heads=9, kv_heads=3, exact=False)
    for index, actual in enumerate(case.run(level, 1)):
        expected = case.expected(index)
        assert np.sqrt(np.square(actual - expected).mean() / np.square(expected).mean()) < 0.02


@every_level
def test_many_small_weights_beside_a_large_one(level):
    """A first token that takes most of the weight does not silence the others, which agree."""
    case = Case("int8", [(800, 1)], heads=3, kv_heads=1)
    (_, q), (_, k), (_, v) = case.q[0], case.k[0], case.v[0]
    k[:] = 0
    k[0, 0], q[:] = 1, 8.0 * np.log(800)
    q[..., 1:] = 0
    v[0], v[1:] = 0, 1
    case.q, case.k, case.v = ([rounded(array.astype(np.float32), "int8")] for array in (q, k, v))
    assert np.abs(case.run(level, 1)[0] - case.expected(0)).max() < 0.005


@every_level
@pytest.mark.parametrize("window", [None, 100, 300])
@pytest.mark.parametrize("block_size", [5, 16])
def test_in_float32_bits_depend_on_nothing_but_the_sequence(level, window, block_size):
    """Not on the batch, on threads, nor on which queries are computed together."""
    shape = {"window": window, "block_size": block_size, "heads": 5, "kv_heads": 1}
    whole = Case("f32", [(0, 700), (600, 1), (0, 9)], **shape)
    together = whole.run(level, 1)
    assert all((a == b).all() for a, b in zip(whole.run(level, 3), together, strict=True))
    for start, length in ((0, 1), (1, 30), (255, 3), (511, 70), (690, 10)):
        part = Case("f32", [(start, length), (40, 60)], seed=1, **shape)
        part.k[0], part.v[0] = ((bits[: start + length], None) for bits, _ in (whole.k[0], whole.v[0]))
        part.q[0] = whole.q[0][0][start : start + length], None
        assert (part.run(level, 2)[0] == together[0][start : start + length]).all()


def test_two_engines_at_once():
    """Each of two threads has an engine of its own; their results are right, and their memory goes with them."""
    cases = [Case("bf16", MIXED, seed=1), Case("int8", DECODE, heads=9, kv_heads=3, seed=2)]
    failures = []

    def check(case):
        try:
            for _ in range(10):
                case.check(None, 2)
        except AssertionError as error:
            failures.append(error)

    workers = [threading.Thread(target=check, args=(case,)) for case in cases]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    gc.collect()
    assert not failures


def test_the_best_level_is_the_default():
    assert kernels_name() == next(level for level in reversed(LEVELS) if not missing(level))
    assert not missing("portable")


def test_bytes_of_a_block():
    """Two bytes a number, one and a scale for each token, or four; slots in pairs, in fours or single."""
    shape = {"heads": 6, "kv_heads": 3, "head_dim": 64, "threads": 1}
    sizes = [PagedAttention(**shape, kv=kv, block_size=size).block_bytes for kv in KV_KINDS for size in (5, 16)]
    assert sizes == [6 * 6 * 128, 6 * 16 * 128, 6 * 8 * 68, 6 * 16 * 68, 6 * 5 * 256, 6 * 16 * 256]


def test_what_the_kernels_cannot_do_is_said():
    shape = {"heads": 4, "kv_heads": 2, "block_size": 16, "threads": 1}
    with pytest.raises(KernelsMissing, match="head_dim in multiples of 8, not 20"):
        PagedAttention(**shape, head_dim=20)
    with pytest.raises(KernelsMissing, match="no avx1024"):
        PagedAttention(**shape, head_dim=64, level="avx1024")

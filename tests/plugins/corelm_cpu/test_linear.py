"""Products with weights of every kind, at every level this machine can run, against double precision."""

import ctypes

import numpy as np
import pytest
from corelm_cpu.kernels import library
from corelm_cpu.native_model import _Matrix
from corelm_cpu.packed import Kind
from corelm_cpu.packed.native import allocate, matrix_bytes
from levels import every_level, needs_kernels
from unpacking import unpack

pytestmark = needs_kernels
every_kind = pytest.mark.parametrize("kind", Kind)
CODED = (Kind.Q8_0, Kind.Q4_0, Kind.Q4_1)
every_coded_kind = pytest.mark.parametrize("kind", CODED)
BFLOAT16_ROWS = {"amx": 17}
"""From so many rows on a level rounds activations to bfloat16, and quantised weights, too."""
FLOAT32 = 2e-6
"""What sums in float32 may lose, relative to those of absolute values."""


class Weights:
    """A random matrix and a random bias."""

    def __init__(self, kind, outputs, inputs, seed=0):
        self.random = random = np.random.default_rng(seed)
        self.kind, self.outputs, self.inputs = kind, outputs, inputs
        tiles, self.width = -(-outputs // 32), -(-inputs // 32) * 32
        self.data = allocate(matrix_bytes(kind, outputs, inputs))
        self.bias = random.normal(size=32 * tiles).astype(np.float32)
        if kind in CODED:
            self._draw_codes(tiles)
        elif kind == Kind.F32:
            self.data.view(np.float32)[:] = random.normal(size=len(self.data) // 4)
        else:
            bits = random.normal(size=len(self.data) // 2).astype(np.float32).view(np.uint32)
            self.data.view(np.uint16)[:] = bits >> 16

    def _draw_codes(self, tiles):
        kind, random = self.kind, self.random
        groups = self.data.reshape(tiles, self.width // 32, -1)
        numbers = 64 if kind == Kind.Q4_1 else 32
        groups[..., 2 * numbers :] = random.integers(0, 256, groups[..., 2 * numbers :].shape)
        self.halves = groups[..., : 2 * numbers].view(np.float16)
        """[tiles, groups, scales and offsets]"""
        self.halves[..., :32] = random.uniform(0.01, 0.1, self.halves[..., :32].shape)
        self.halves[..., 32:] = random.uniform(-1, 1, self.halves[..., 32:].shape)

    def values(self):
        """[outputs, whole groups of inputs] in double precision."""
        return unpack(self.data, self.kind, self.outputs, self.inputs)[: self.outputs].astype(np.float64)

    def draw(self, rows):
        """Activations [rows, whole groups], of very different sizes."""
        x = self.random.normal(size=(rows, self.width)) * self.random.lognormal(0, 2, (rows, 1))
        x[:, self.inputs :] = 0
        return x.astype(np.float32)

    def multiply(self, level, x, threads=2, *, bias=False):
        """What the kernels make of it, [rows, outputs]."""
        multiply = library().corelm_multiply
        multiply.argtypes = [
            ctypes.c_char_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_void_p,
            ctypes.c_int,
        ]
        multiply.restype = None
        address = self.bias.ctypes.data if bias else None
        matrix = _Matrix(self.kind, self.outputs, self.inputs, self.data.ctypes.data, address)
        out = np.full((len(x) + 1, self.outputs), np.nan, np.float32)
        multiply(level.encode(), ctypes.byref(matrix), x.ctypes.data, len(x), out.ctypes.data, threads)
        assert np.isnan(out[-1]).all()
        return out[:-1]


def in_bytes(x):
    """Activations as they are rounded to 8 bits a group, and half a step of each."""
    groups = x.reshape(len(x), -1, 32)
    bounds = np.abs(groups).max(axis=2, keepdims=True)
    factors = np.divide(np.float32(127), bounds, out=np.zeros_like(bounds), where=bounds > 0)
    steps = (bounds / np.float32(127)).astype(np.float64)
    rounded = np.rint(groups * factors) * steps
    return rounded.reshape(x.shape), np.broadcast_to(steps / 2, groups.shape).reshape(x.shape)


def in_bfloat16(x, half_step):
    """Numbers rounded to bfloat16; `half_step` decides about ties."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + half_step(bits)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def check(weights, level, x, threads=2, *, bias=False):
    """Compare with what the same rounding gives, and with what none gives."""
    actual, w = weights.multiply(level, x, threads, bias=bias), weights.values()
    added = weights.bias[: weights.outputs] if bias else 0.0
    sizes = np.abs(x).astype(np.float64) @ np.abs(w).T + np.abs(added)
    if weights.kind == Kind.F32:
        expected, lost = x @ w.T, 0.0
    elif weights.kind == Kind.BF16 or len(x) >= BFLOAT16_ROWS.get(level, 10**9):
        rounded = in_bfloat16(x, lambda bits: 0x7FFF + (bits >> 16 & 1))
        expected, lost = rounded @ in_bfloat16(w, lambda bits: 0x8000).T, 2**-7 * sizes
    else:
        rounded, half_steps = in_bytes(x)
        expected, lost = rounded @ w.T, half_steps @ np.abs(w).T
    assert (np.abs(actual - expected - added) <= FLOAT32 * sizes).all()
    assert (np.abs(actual - x @ w.T - added) <= 1.01 * lost + FLOAT32 * sizes).all()


@every_level
@every_kind
def test_rows(level, kind):
    """Numbers of rows around those that are done together, panels, and blocks of rows."""
    weights = Weights(kind, 70, 100)
    for rows in (*range(1, 41), 127, 128, 129, 144, 145, 257, 300):
        check(weights, level, weights.draw(rows))


@every_level
@every_kind
@pytest.mark.parametrize("rows", [1, 5, 19])
def test_sizes(level, kind, rows):
    """Tiles and groups that are not filled, and more groups than are widened at a time."""
    for outputs, inputs in ((1, 1), (31, 33), (32, 32), (33, 513), (200, 64), (16, 1100)):
        weights = Weights(kind, outputs, inputs, seed=inputs)
        check(weights, level, weights.draw(rows))


@every_level
@every_kind
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_threads_and_biases(level, kind, threads):
    weights = Weights(kind, 300, 40, seed=threads)
    for rows in (2, 33):
        check(weights, level, weights.draw(rows), threads, bias=True)


@every_level
@every_kind
@pytest.mark.parametrize("rows", [3, 20, 140])
def test_what_is_no_number_stays_in_its_row(level, kind, rows):
    weights = Weights(kind, 70, 100)
    x = weights.draw(rows)
    healthy = weights.multiply(level, x)
    for sick in (np.nan, np.inf, -np.inf):
        x[1, 99] = sick
        actual = weights.multiply(level, x)
        assert not np.isfinite(actual[1]).any()
        assert (np.delete(actual, 1, axis=0) == np.delete(healthy, 1, axis=0)).all()


@every_level
@every_coded_kind
@pytest.mark.parametrize("rows", [3, 20])
def test_a_scale_that_is_no_number_shows_in_its_output(level, kind, rows):
    """As in a damaged checkpoint, whatever bits the NaN has."""
    weights = Weights(kind, 70, 100)
    x = weights.draw(rows)
    healthy = weights.multiply(level, x)
    for place in (3, 35) if kind == Kind.Q4_1 else (3,):
        before = weights.halves[1, 2, place]
        for bits in (0x7E00, 0x7FFF, 0xFFFF, 0x7C00):
            weights.halves[1, 2, place] = np.array(bits, np.uint16).view(np.float16)
            actual = weights.multiply(level, x)
            assert not np.isfinite(actual[:, 35]).any()
            assert (np.delete(actual, 35, axis=1) == np.delete(healthy, 35, axis=1)).all()
        weights.halves[1, 2, place] = before


@every_level
@every_kind
@pytest.mark.parametrize("rows", [3, 20])
def test_zeros_and_almost_zeros(level, kind, rows):
    """Numbers so small that their reciprocals are infinite count as zeros."""
    weights = Weights(kind, 70, 100)
    x = weights.draw(rows)
    x[0] = 0
    x[1, :50], x[1, 50:] = 0, -1e-39
    actual = weights.multiply(level, x, bias=True)
    assert (actual[:2] == weights.bias[:70]).all()


@every_level
@pytest.mark.parametrize("kind", [Kind.BF16, Kind.F32])
@pytest.mark.parametrize("rows", [1, 3, 20])
def test_a_weight_that_is_no_number_shows_in_its_output(level, kind, rows):
    weights = Weights(kind, 70, 100)
    x = weights.draw(rows)
    healthy = weights.multiply(level, x)
    words, at = weights.data.view(np.uint32), 128 + 70  # input 70 of output 35, which stands in the second tile
    if kind == Kind.BF16:
        at //= 2
    before, own = words[32 * at + 3].copy(), 0 if kind == Kind.F32 else words[32 * at + 3] >> 16
    for bits in (0x7FC0, 0x7F81, 0xFFFF, 0x7F80):
        words[32 * at + 3] = bits << 16 if kind == Kind.F32 else bits | own << 16
        actual = weights.multiply(level, x)
        assert not np.isfinite(actual[:, 35]).any()
        assert (np.delete(actual, 35, axis=1) == np.delete(healthy, 35, axis=1)).all()
    words[32 * at + 3] = before
    assert (weights.multiply(level, x) == healthy).all()


@every_level
@pytest.mark.parametrize("threads", [1, 3])
def test_in_float32_bits_depend_on_nothing_but_row_and_output(level, threads):
    """Not on how many rows there are, where the row stands among them, nor on how many outputs."""
    weights = Weights(Kind.F32, 70, 600)
    x = weights.draw(300)
    alone = np.concatenate([weights.multiply(level, row[None], 1) for row in x])
    for rows in (*range(2, 30), 255, 256, 257, 300):
        assert (weights.multiply(level, x[:rows], threads) == alone[:rows]).all()
        assert (weights.multiply(level, x[-rows:], threads) == alone[-rows:]).all()
    fewer = Weights(Kind.F32, 33, 600)
    fewer.data[:] = weights.data[: len(fewer.data)]
    assert (fewer.multiply(level, x, threads) == alone[:, :33]).all()

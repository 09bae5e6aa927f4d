"""Rows of tensors packed by the kernels, against the drawing in ``native/linear/layout.h``."""

import os
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from corelm_cpu.kernels import KernelsMissing, library
from corelm_cpu.packed.kinds import SOURCES
from corelm_cpu.packed.layout import Kind
from corelm_cpu.packed.native import allocate, matrix_bytes, pack_rows
from corelm_torch.weights import Encoding, Weight
from unpacking import unpack

try:
    library()
except KernelsMissing:
    pytest.skip("the kernels were not built", allow_module_level=True)

STATM = Path("/proc/self/statm")
LOSSLESS = [("Q8_0", "Q8_0"), ("Q4_0", "Q4_0"), ("Q4_0", "Q4_1"), ("Q4_0", "Q8_0"), ("Q4_1", "Q4_1")]
PLAIN = [("F32", "F32"), ("F16", "F32"), ("BF16", "F32"), ("BF16", "BF16")]
"""Taken number by number, without loss."""
ROUNDED = [(encoding, kind) for encoding in ("F32", "F16", "BF16") for kind in ("Q8_0", "Q4_1")]


def stored(values, encoding):
    """`values` [rows, inputs] as they are stored, and what they are then."""
    match encoding:
        case "F32" | "F16":
            data = values.astype("<f4" if encoding == "F32" else "<f2").view(np.uint8)
        case "BF16":
            data = (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8)
        case _:
            data = gguf.quantize(values, gguf.GGMLQuantizationType[encoding])
    weight = Weight(name="x", shape=values.shape, encoding=Encoding(encoding), data=data, file="")
    return data, weight.values()


def pack(values, encoding, kind, *, outputs=None, first=0, stride=16):
    """The packed matrix, unpacked again, and what was packed."""
    data, exact = stored(values, encoding)
    outputs = outputs or len(values)
    memory = np.zeros(matrix_bytes(kind, outputs, values.shape[1]), np.uint8)
    pack_rows(memory.ctypes.data, kind, first, stride, SOURCES[Encoding(encoding)], data, values.shape[1])
    return unpack(memory, kind, outputs, values.shape[1]), exact


def draw(rows, inputs, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, inputs)).astype(np.float32)


@pytest.mark.parametrize(("encoding", "kind"), LOSSLESS)
@pytest.mark.parametrize(("rows", "inputs"), [(1, 32), (33, 96), (64, 576)])
def test_blocks_are_taken_without_loss(encoding, kind, rows, inputs):
    packed, exact = pack(draw(rows, inputs), encoding, Kind[kind])
    assert (packed[:rows] == exact).all()
    assert (packed[rows:] == 0).all()


@pytest.mark.parametrize(("encoding", "kind"), PLAIN)
@pytest.mark.parametrize(("rows", "inputs"), [(1, 8), (33, 100), (64, 576)])
def test_numbers_are_taken_without_loss(encoding, kind, rows, inputs):
    packed, exact = pack(draw(rows, inputs), encoding, Kind[kind])
    assert (packed[:rows, :inputs] == exact).all()
    assert (packed[rows:] == 0).all()
    assert (packed[:, inputs:] == 0).all()


@pytest.mark.parametrize("encoding", ["F32", "F16"])
def test_numbers_become_the_nearest_in_bfloat16(encoding):
    values = draw(40, 70)
    values[0, :6] = 1 + 2**-8, 1 + 3 * 2**-8, -0.0, np.nan, np.inf, 60000
    packed, exact = pack(values, encoding, Kind.BF16)
    expected = torch.from_numpy(exact.copy()).bfloat16().float().numpy()
    assert np.array_equal(packed[:40, :70], expected, equal_nan=True)


@pytest.mark.parametrize("encoding", ["Q8_0", "Q4_0", "Q4_1"])
@pytest.mark.parametrize("kind", [Kind.BF16, Kind.F32])
def test_codes_are_not_made_numbers_here(encoding, kind):
    with pytest.raises(AssertionError, match="no kernel makes"):
        pack(draw(4, 32), encoding, kind)


def test_every_code_and_scales_of_all_sizes_are_taken():
    codes = np.arange(-128, 128, dtype=np.int8).reshape(8, 32)
    scales = np.float16([6e-8, 1e-5, 6.2e-5, 0.1, -0.1, 1, 0, 65504])
    data = np.concatenate([scales.view(np.uint8).reshape(8, 2), codes.view(np.uint8)], axis=1)
    memory = np.zeros(matrix_bytes(Kind.Q8_0, 8, 32), np.uint8)
    pack_rows(memory.ctypes.data, Kind.Q8_0, 0, 16, SOURCES[Encoding.Q8_0], data, 32)
    expected = scales.astype(np.float32)[:, None] * codes
    assert (unpack(memory, Kind.Q8_0, 8, 32)[:8] == expected).all()


@pytest.mark.parametrize("scale", [6e-8, 1.2e-7, 5e-5, 0.013, -3.7, 8000.0])
def test_the_offset_of_q4_0_as_q4_1_is_exact(scale):
    data = np.concatenate([np.float16([scale]).view(np.uint8), np.arange(16, dtype=np.uint8) * 17])[None]
    memory = np.zeros(matrix_bytes(Kind.Q4_1, 1, 32), np.uint8)
    pack_rows(memory.ctypes.data, Kind.Q4_1, 0, 16, SOURCES[Encoding.Q4_0], data, 32)
    assert (unpack(memory, Kind.Q4_1, 1, 32)[:1] == gguf.dequantize(data, gguf.GGMLQuantizationType.Q4_0)).all()


@pytest.mark.parametrize(("encoding", "kind"), ROUNDED)
@pytest.mark.parametrize(("rows", "inputs"), [(1, 8), (33, 100), (64, 576)])
def test_floats_are_rounded_to_what_is_near(encoding, kind, rows, inputs):
    values = draw(rows, inputs) * np.float32(0.02)
    packed, exact = pack(values, encoding, Kind[kind])
    groups = [exact[:, begin : begin + 32] for begin in range(0, inputs, 32)]
    for index, group in enumerate(groups):
        error = np.abs(packed[:rows, 32 * index : 32 * index + group.shape[1]] - group)
        largest = np.abs(group).max(axis=1, keepdims=True)
        assert (error <= largest * (0.51 / 127 if kind == "Q8_0" else 0.2)).all()
    assert (packed[rows:] == 0).all()


@pytest.mark.parametrize(("kind", "share"), [("Q8_0", 1.001), ("Q4_1", 0.86)])
def test_the_error_is_small(kind, share):
    """Mean squares, against quantising from the smallest to the largest number without further ado."""
    values = draw(64, 1024, seed=3)
    packed, _ = pack(values, "F32", Kind[kind])
    plain = gguf.GGMLQuantizationType[kind]
    ordinary = gguf.dequantize(gguf.quantize(values, plain), plain)
    assert ((packed - values) ** 2).mean() < share * ((ordinary - values) ** 2).mean()


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
@pytest.mark.parametrize("value", [0.0, 1.0, -2.5, 1e-3])
def test_equal_numbers_stay_what_they_are(kind, value):
    packed, exact = pack(np.full((2, 64), value, np.float32), "F32", Kind[kind])
    assert np.allclose(packed[:2], exact, rtol=1e-3, atol=0)


def test_missing_inputs_have_weights_of_zero():
    for encoding in ("F32", "F16", "BF16"):
        data, _ = stored(draw(3, 40), encoding)
        memory = np.zeros(matrix_bytes(Kind.Q8_0, 3, 40), np.uint8)
        pack_rows(memory.ctypes.data, Kind.Q8_0, 0, 16, SOURCES[Encoding(encoding)], data, 40)
        assert (unpack(memory, Kind.Q8_0, 3, 64)[:, 40:] == 0).all()


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 17, 31])
def test_what_is_not_finite_makes_its_group_a_nan(kind, number, place):
    values = draw(4, 96)
    values[2, 32 + place] = number
    packed, _ = pack(values, "F32", Kind[kind])
    assert np.isnan(packed[2, 32:64]).all()
    packed[2, 32:64] = 0
    assert np.isfinite(packed).all()


@pytest.mark.parametrize(("encoding", "kind"), LOSSLESS + PLAIN + ROUNDED)
def test_two_tensors_in_turns_and_others_behind(encoding, kind):
    """Sixteen rows of one, sixteen of the other, the last run of each incomplete; and rows that begin within a tile."""
    gate, up = draw(23, 64, seed=1), draw(23, 64, seed=2)
    first, alone = pack(gate, encoding, Kind[kind], outputs=64, stride=32)[0], pack(gate, encoding, Kind[kind])[0]
    assert (first[[*range(16), *range(32, 39)]] == alone[:23]).all()
    assert (first[[*range(16, 32), *range(39, 64)]] == 0).all()
    second, alone = (
        pack(up, encoding, Kind[kind], outputs=64, first=16, stride=32)[0],
        pack(up, encoding, Kind[kind])[0],
    )
    assert (second[[*range(16, 32), *range(48, 55)]] == alone[:23]).all()
    behind = pack(up, encoding, Kind[kind], outputs=64, first=24)[0]
    assert (behind[24:47] == alone[:23]).all()
    assert (behind[:24] == 0).all()


def test_memory_begins_at_a_huge_page_and_lives_as_long_as_its_arrays():
    part = allocate(5_000_000)[4_000_000:4_000_010]
    assert (part.ctypes.data - 4_000_000) % 2**21 == 0
    assert (part == 0).all()
    part[:] = 7
    assert part.sum() == 70


@pytest.mark.skipif(not STATM.exists(), reason="only Linux tells")
def test_memory_is_freed():
    pages = [int(STATM.read_text().split()[0])]
    for _ in range(20):
        allocate(2**30)[0] = 1
        pages.append(int(STATM.read_text().split()[0]))
    assert (max(pages) - pages[0]) * os.sysconf("SC_PAGE_SIZE") < 2**29


def test_without_memory_it_says_so():
    with pytest.raises(MemoryError, match=r"the weights take 4294967296\.00 GiB, but only \d+\.\d\d GiB"):
        allocate(2**62)

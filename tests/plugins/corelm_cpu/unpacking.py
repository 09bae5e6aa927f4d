"""Packed matrices as they are drawn in ``native/linear/layout.h``, read by NumPy."""

import numpy as np
from corelm_cpu.packed.layout import Kind


def unpack(data: np.ndarray, kind: Kind, outputs: int, inputs: int) -> np.ndarray:
    """The weights [outputs, inputs], each rounded up to whole tiles and groups, in float32."""
    tiles, groups = -(-outputs // 32), -(-inputs // 32)
    if kind in (Kind.BF16, Kind.F32):
        return _floats(data, kind).reshape(tiles, 32 * groups, 32).swapaxes(1, 2).reshape(32 * tiles, 32 * groups)
    group = data.reshape(tiles, groups, -1)
    numbers = 64 if kind == Kind.Q4_1 else 32
    halves = group[..., : 2 * numbers].copy().view("<f2").astype(np.float32)
    codes = group[..., 2 * numbers :]
    if kind == Kind.Q8_0:
        quads = codes.reshape(tiles, groups, 8, 32, 4)
    else:
        pairs = codes.reshape(tiles, groups, 4, 32, 4)
        quads = np.stack([pairs & 15, pairs >> 4], axis=3).reshape(tiles, groups, 8, 32, 4)
    codes = quads.transpose(0, 3, 1, 2, 4).reshape(32 * tiles, groups, 32).astype(np.float32)
    scales, *offsets = (
        numbers.transpose(0, 2, 1).reshape(32 * tiles, groups, 1)
        for numbers in np.split(halves, halves.shape[2] // 32, 2)
    )
    zero = {Kind.Q8_0: 128, Kind.Q4_0: 8, Kind.Q4_1: 0}[kind]
    return (scales * (codes - zero) + (offsets[0] if offsets else 0)).reshape(32 * tiles, 32 * groups)


def _floats(data: np.ndarray, kind: Kind) -> np.ndarray:
    """What lies there, input by input."""
    if kind == Kind.F32:
        return data.view("<f4")
    pairs = data.view("<u2").reshape(-1, 32, 2).swapaxes(1, 2)
    return (pairs.astype(np.uint32) << 16).view(np.float32)

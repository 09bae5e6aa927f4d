"""Products with weights that are quantised in groups of 32, as GGUF files have them.

A group has a scale and an offset: a weight is ``scale * q + offset``. Bytes are int8 [outputs, inputs]. Nibbles are
uint8 [outputs, inputs / 2]: byte j of a group holds its weights j (low) and j + 16 (high).
"""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch

GROUP = 32
OUTPUTS = 64
GROUPS = 2
"""Groups of inputs, and outputs, that a program computes with at a time."""


@triton.jit
def _dequantised(
    q,
    scale,
    offset,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    HALF: tl.constexpr,
    OFFSETS: tl.constexpr,
):
    """Half of some groups' weights [OUTPUTS, GROUPS * HALF] in float32, with scales [OUTPUTS, GROUPS]."""
    grouped = tl.reshape(q.to(tl.float32), [OUTPUTS, GROUPS, HALF]) * scale.to(tl.float32)[:, :, None]
    if OFFSETS:
        grouped += offset.to(tl.float32)[:, :, None]
    return tl.reshape(grouped, [OUTPUTS, GROUPS * HALF])


@triton.jit
def _quantised_linear(
    x,
    weights,
    scales,
    offsets,
    bias,
    y,
    rows,
    outputs,
    inputs,
    x_stride,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    HALF: tl.constexpr,
    NIBBLES: tl.constexpr,
    OFFSETS: tl.constexpr,
    BIAS: tl.constexpr,
):
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    first_output = (tl.program_id(0) * OUTPUTS).to(tl.int64)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    some_rows, some_outputs = (row < rows)[:, None], (output < outputs)[:, None]
    half, few = tl.arange(0, GROUPS * HALF), tl.arange(0, GROUPS)
    low = (half // HALF * 2 * HALF + half % HALF)[None, :]
    num_groups = inputs // (2 * HALF)
    # What a program reads of weights and scales lies within 2**31 of where it begins.
    line = tl.arange(0, OUTPUTS)[:, None]
    x += row.to(tl.int64)[:, None] * x_stride
    weights += first_output * (inputs // 2 if NIBBLES else inputs)
    scales += first_output * num_groups
    offsets += first_output * num_groups
    total = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for first in range(0, num_groups, GROUPS):
        there = (first + half // HALF < num_groups)[None, :]
        x_low = tl.load(x + first * 2 * HALF + low, mask=some_rows & there, other=0.0)
        x_high = tl.load(x + first * 2 * HALF + low + HALF, mask=some_rows & there, other=0.0)
        wanted = some_outputs & there
        if NIBBLES:
            packed = tl.load(weights + line * (inputs // 2) + first * HALF + half[None, :], mask=wanted, other=0)
            q_low, q_high = packed & 15, packed >> 4
        else:
            q_low = tl.load(weights + line * inputs + first * 2 * HALF + low, mask=wanted, other=0)
            q_high = tl.load(weights + line * inputs + first * 2 * HALF + low + HALF, mask=wanted, other=0)
        of_group = line * num_groups + (first + few)[None, :]
        groups_there = some_outputs & (first + few < num_groups)[None, :]
        scale = tl.load(scales + of_group, mask=groups_there, other=0.0)
        offset = tl.load(offsets + of_group, mask=groups_there, other=0.0) if OFFSETS else scale
        w_low = _dequantised(q_low, scale, offset, OUTPUTS, GROUPS, HALF, OFFSETS).to(x_low.dtype)
        w_high = _dequantised(q_high, scale, offset, OUTPUTS, GROUPS, HALF, OFFSETS).to(x_low.dtype)
        total = tl.dot(x_low, tl.trans(w_low), total, input_precision="ieee")
        total = tl.dot(x_high, tl.trans(w_high), total, input_precision="ieee")
    if BIAS:
        total += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    y_places = y + row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(y_places, total.to(y.dtype.element_ty), mask=some_rows & (output < outputs)[None, :])


def quantised_linear(
    x: torch.Tensor,
    weights: torch.Tensor,
    scales: torch.Tensor,
    offsets: torch.Tensor | None,
    bias: torch.Tensor | None,
    y: torch.Tensor,
) -> Launch:
    """Write ``x @ w.T + bias`` to `y` [M, outputs], contiguous. `x` is [M, inputs], a multiple of 32.

    `scales` and `offsets` are [outputs, inputs / 32]; without `offsets` they are 0.
    """
    rows, inputs = x.shape
    outputs = y.shape[1]
    tile = 16 if rows <= 16 else 64
    return Launch(
        kernel=_quantised_linear,
        grid=(triton.cdiv(outputs, OUTPUTS), triton.cdiv(rows, tile)),
        arguments={
            "x": x,
            "weights": weights,
            "scales": scales,
            "offsets": scales if offsets is None else offsets,
            "bias": scales if bias is None else bias,
            "y": y,
            "rows": rows,
            "outputs": outputs,
            "inputs": inputs,
            "x_stride": x.stride(0),
        },
        constants={
            "ROWS": tile,
            "OUTPUTS": OUTPUTS,
            "GROUPS": GROUPS,
            "HALF": GROUP // 2,
            "NIBBLES": weights.dtype == torch.uint8,
            "OFFSETS": offsets is not None,
            "BIAS": bias is not None,
        },
        num_warps=4,
        num_stages=3,
    )


def dequantised(weights: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor:
    """The weights [outputs, inputs] in float64."""
    if weights.dtype == torch.uint8:
        packed = weights.view(len(weights), -1, GROUP // 2)
        weights = torch.cat([packed & 15, packed >> 4], dim=-1)
    grouped = weights.view(len(weights), -1, GROUP).double() * scales.double().unsqueeze(-1)
    if offsets is not None:
        grouped += offsets.double().unsqueeze(-1)
    return grouped.flatten(1)

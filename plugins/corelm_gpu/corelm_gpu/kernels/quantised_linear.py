"""Products of a few rows with quantised weights, which are dequantised on the way."""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.dequantise import dequantised, layout
from corelm_gpu.kernels.launch import Launch
from corelm_gpu.quantised import QuantisedWeight

INPUTS = 64
OUTPUTS = 64
"""What a program computes with at a time."""


@triton.jit
def _add_product(
    total,
    x,
    some_rows,
    there,
    q,
    scale,
    offset,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ZERO: tl.constexpr,
    OFFSETS: tl.constexpr,
):
    """Add the product of what lies at `x` [rows, GROUPS * WIDTH] with weights of so many inputs."""
    values = tl.load(x, mask=some_rows & there, other=0.0)
    w = dequantised(q, scale, offset, OUTPUTS, GROUPS, WIDTH, ZERO, OFFSETS).to(values.dtype)
    return tl.dot(values, tl.trans(w), total, input_precision="ieee")


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
    num_groups,
    x_stride,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    ZERO: tl.constexpr,
    NIBBLES: tl.constexpr,
    OFFSETS: tl.constexpr,
    BIAS: tl.constexpr,
):
    width: tl.constexpr = GROUP // 2 if NIBBLES else GROUP
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    first_output = (tl.program_id(0) * OUTPUTS).to(tl.int64)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    some_rows, some_outputs = (row < rows)[:, None], (output < outputs)[:, None]
    place, few = tl.arange(0, GROUPS * width)[None, :], tl.arange(0, GROUPS)[None, :]
    # What a program reads of weights and scales lies within 2**31 of where it begins.
    line = tl.arange(0, OUTPUTS)[:, None]
    x += row.to(tl.int64)[:, None] * x_stride + place // width * GROUP + place % width
    weights += first_output * num_groups * width + line * num_groups * width + place
    scales += first_output * num_groups + line * num_groups + few
    offsets += first_output * num_groups + line * num_groups + few
    total = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for first in range(0, num_groups, GROUPS):
        groups_there = some_outputs & (first + few < num_groups)
        scale = tl.load(scales + first, mask=groups_there, other=0.0)
        offset = tl.load(offsets + first, mask=groups_there, other=0.0) if OFFSETS else scale
        there = first + place // width < num_groups
        q = tl.load(weights + first * width, mask=some_outputs & there, other=0)
        if NIBBLES:
            total = _add_product(
                total, x + first * GROUP, some_rows, there, q & 15, scale, offset,
                OUTPUTS, GROUPS, width, ZERO, OFFSETS,
            )  # fmt: skip
            total = _add_product(
                total, x + first * GROUP + width, some_rows, there, q >> 4, scale, offset,
                OUTPUTS, GROUPS, width, ZERO, OFFSETS,
            )  # fmt: skip
        else:
            total = _add_product(
                total, x + first * GROUP, some_rows, there, q, scale, offset,
                OUTPUTS, GROUPS, width, ZERO, OFFSETS,
            )  # fmt: skip
    if BIAS:
        total += tl.load(bias + output, mask=output < outputs, other=0.0).to(tl.float32)[None, :]
    target = y + row.to(tl.int64)[:, None] * outputs + output[None, :]
    tl.store(target, total.to(y.dtype.element_ty), mask=some_rows & (output < outputs)[None, :])


def quantised_linear(x: torch.Tensor, weight: QuantisedWeight, bias: torch.Tensor | None, y: torch.Tensor) -> Launch:
    """Write ``x @ weight.T + bias`` to `y` [M, outputs], contiguous. `x` is [M, inputs]; its rows may lie apart.

    Weights are rounded to the type of `x`; sums are in float32.
    """
    rows, outputs = y.shape
    tile = 16 if rows <= 16 else 64
    return Launch(
        kernel=_quantised_linear,
        grid=(triton.cdiv(outputs, OUTPUTS), triton.cdiv(rows, tile)),
        arguments={
            "x": x,
            "weights": weight.weights,
            "scales": weight.scales,
            "offsets": weight.scales if weight.offsets is None else weight.offsets,
            "bias": weight.scales if bias is None else bias,
            "y": y,
            "rows": rows,
            "outputs": outputs,
            "num_groups": weight.scales.shape[1],
            "x_stride": x.stride(0),
        },
        constants={
            "ROWS": tile,
            "OUTPUTS": OUTPUTS,
            "GROUPS": INPUTS // weight.group,
            "BIAS": bias is not None,
            **layout(weight),
        },
        num_warps=4,
        num_stages=3,
    )

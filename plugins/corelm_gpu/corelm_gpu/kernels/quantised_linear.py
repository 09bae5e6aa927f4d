"""Products of a few rows with quantised weights, which are dequantised on the way."""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.dequantise import dequantised, layout, load_scale, parts
from corelm_gpu.kernels.launch import Launch
from corelm_gpu.quantised import QuantisedWeight

FEW_ROWS = 16
"""Up to so many rows, a product waits for weights alone: programs are small, to be many, and read whole cache lines."""


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


@triton.jit(do_not_specialize=["rows"])
def _quantised_linear(
    x,
    weights,
    scales,
    offsets,
    scale_factors,
    offset_factors,
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
    GROUPS_PER_FACTOR: tl.constexpr,
    ZERO: tl.constexpr,
    NIBBLES: tl.constexpr,
    OFFSETS: tl.constexpr,
    BIAS: tl.constexpr,
):
    width: tl.constexpr = GROUP // 2 if NIBBLES else GROUP
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    some_rows, some_outputs = (row < rows)[:, None], (output < outputs)[:, None]
    place, few = tl.arange(0, GROUPS * width)[None, :], tl.arange(0, GROUPS)[None, :]
    line = output.to(tl.int64)[:, None]
    x += row.to(tl.int64)[:, None] * x_stride + place // width * GROUP + place % width
    weights += line * (num_groups * width) + place
    total = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for first in range(0, num_groups, GROUPS):
        group = first + few
        groups_there = some_outputs & (group < num_groups)
        scale = load_scale(scales, scale_factors, line, group, num_groups, groups_there, GROUPS_PER_FACTOR)
        offset = scale
        if OFFSETS:
            offset = load_scale(offsets, offset_factors, line, group, num_groups, groups_there, GROUPS_PER_FACTOR)
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
    few = rows <= FEW_ROWS
    tile, output_tile, width = (FEW_ROWS, 32, 128) if few else (64, 64, 64)
    inputs = 2 * width if weight.nibbles else width
    return Launch(
        kernel=_quantised_linear,
        grid=(triton.cdiv(outputs, output_tile), triton.cdiv(rows, tile)),
        arguments={
            "x": x,
            **parts(weight),
            "bias": weight.scales if bias is None else bias,
            "y": y,
            "rows": rows,
            "outputs": outputs,
            "num_groups": weight.scales.shape[1],
            "x_stride": x.stride(0),
        },
        constants={
            "ROWS": tile,
            "OUTPUTS": output_tile,
            "GROUPS": inputs // weight.group,
            "BIAS": bias is not None,
            **layout(weight),
        },
        num_warps=4,
        num_stages=4 if few else 3,
    )

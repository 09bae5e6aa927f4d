"""The numbers of quantised weights, for products of many rows."""

from typing import Any

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch
from corelm_gpu.quantised import QuantisedWeight

GROUPS = 8
"""Of one row, for one program, times `ROWS`."""
ROWS = 16


@triton.jit
def load_scale(scales, factors, row, group, num_groups, there, GROUPS_PER_FACTOR: tl.constexpr):
    """Scales, or offsets, of groups of rows, in float32."""
    scale = tl.load(scales + row * num_groups + group, mask=there, other=0).to(tl.float32)
    if GROUPS_PER_FACTOR > 0:
        place = row * (num_groups // GROUPS_PER_FACTOR) + group // GROUPS_PER_FACTOR
        scale *= tl.load(factors + place, mask=there, other=0.0).to(tl.float32)
    return scale


@triton.jit
def dequantised(
    q,
    scale,
    offset,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ZERO: tl.constexpr,
    OFFSETS: tl.constexpr,
):
    """Weights [ROWS, GROUPS * WIDTH] in float32, of `q` of that shape and scales [ROWS, GROUPS]."""
    grouped = tl.reshape((q.to(tl.int32) - ZERO).to(tl.float32), [ROWS, GROUPS, WIDTH]) * scale[:, :, None]
    if OFFSETS:
        grouped += offset[:, :, None]
    return tl.reshape(grouped, [ROWS, GROUPS * WIDTH])


@triton.jit
def _dequantise(
    weights,
    scales,
    offsets,
    scale_factors,
    offset_factors,
    values,
    rows,
    num_groups,
    ROWS: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS_PER_FACTOR: tl.constexpr,
    ZERO: tl.constexpr,
    NIBBLES: tl.constexpr,
    OFFSETS: tl.constexpr,
):
    width: tl.constexpr = GROUP // 2 if NIBBLES else GROUP
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    first = tl.program_id(1) * GROUPS
    group = first + tl.arange(0, GROUPS)[None, :]
    groups_there = (row < rows) & (group < num_groups)
    scale = load_scale(scales, scale_factors, row, group, num_groups, groups_there, GROUPS_PER_FACTOR)
    offset = scale
    if OFFSETS:
        offset = load_scale(offsets, offset_factors, row, group, num_groups, groups_there, GROUPS_PER_FACTOR)
    place = tl.arange(0, GROUPS * width)[None, :]
    there = (row < rows) & (first + place // width < num_groups)
    q = tl.load(weights + (row * num_groups + first) * width + place, mask=there, other=0)
    target = values + (row * num_groups + first) * GROUP + place // width * GROUP + place % width
    kind: tl.constexpr = values.dtype.element_ty
    if NIBBLES:
        low = dequantised(q & 15, scale, offset, ROWS, GROUPS, width, ZERO, OFFSETS)
        high = dequantised(q >> 4, scale, offset, ROWS, GROUPS, width, ZERO, OFFSETS)
        tl.store(target, low.to(kind), mask=there)
        tl.store(target + width, high.to(kind), mask=there)
    else:
        tl.store(target, dequantised(q, scale, offset, ROWS, GROUPS, width, ZERO, OFFSETS).to(kind), mask=there)


def dequantise(weight: QuantisedWeight, values: torch.Tensor) -> Launch:
    """Write the numbers of `weight` to `values` [outputs, inputs], contiguous, rounded to its type."""
    outputs, groups = weight.scales.shape
    return Launch(
        kernel=_dequantise,
        grid=(triton.cdiv(outputs, ROWS), triton.cdiv(groups, GROUPS)),
        arguments={**parts(weight), "values": values, "rows": outputs, "num_groups": groups},
        constants={"ROWS": ROWS, "GROUPS": GROUPS, **layout(weight)},
    )


def parts(weight: QuantisedWeight) -> dict[str, torch.Tensor]:
    """The arguments that a weight is; those that it does not have are not looked at."""
    scales = weight.scales
    factors = scales if weight.scale_factors is None else weight.scale_factors
    return {
        "weights": weight.weights,
        "scales": scales,
        "offsets": scales if weight.offsets is None else weight.offsets,
        "scale_factors": factors,
        "offset_factors": factors if weight.offset_factors is None else weight.offset_factors,
    }


def layout(weight: QuantisedWeight) -> dict[str, Any]:
    """What kernels are compiled for."""
    return {
        "GROUP": weight.group,
        "GROUPS_PER_FACTOR": weight.groups_per_factor,
        "ZERO": weight.zero,
        "NIBBLES": weight.nibbles,
        "OFFSETS": weight.offsets is not None,
    }


def dequantise_reference(weight: QuantisedWeight) -> torch.Tensor:
    """The numbers [outputs, inputs], in float64."""
    q, outputs = weight.weights, weight.shape[0]
    if weight.nibbles:
        packed = q.view(outputs, -1, weight.group // 2)
        q = torch.cat([packed & 15, packed >> 4], dim=-1)
    grouped = q.view(outputs, -1, weight.group).double() - weight.zero
    grouped *= _multiplied(weight.scales, weight.scale_factors)
    if weight.offsets is not None:
        grouped += _multiplied(weight.offsets, weight.offset_factors)
    return grouped.flatten(1)


def _multiplied(scales: torch.Tensor, factors: torch.Tensor | None) -> torch.Tensor:
    """[outputs, groups, 1]"""
    if factors is None:
        return scales.double().unsqueeze(-1)
    return (scales.double().view(*factors.shape, -1) * factors.double().unsqueeze(-1)).flatten(1).unsqueeze(-1)

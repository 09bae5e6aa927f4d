"""Root mean square normalisation (arXiv:1910.07467), after an addition to the residual stream."""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch

NUMBERS = 1024
"""That a program takes at a time, of several rows if these are short."""


@triton.jit(do_not_specialize=["rows"])
def _add_norm(
    x, residual, weight, normed, rows, width, eps, ROWS: tl.constexpr, WIDTH: tl.constexpr, ADD: tl.constexpr
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    columns = tl.arange(0, WIDTH)[None, :]
    inside = (row < rows) & (columns < width)
    places = row.to(tl.int64) * width + columns
    total = tl.load(residual + places, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        total += tl.load(x + places, mask=inside, other=0.0).to(tl.float32)
        # What later layers see is what was stored, so it is also what is normalised.
        rounded = total.to(residual.dtype.element_ty)
        tl.store(residual + places, rounded, mask=inside)
        total = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total, 1) / width + eps)[:, None]
    factors = tl.load(weight + columns, mask=columns < width, other=0.0).to(tl.float32)
    tl.store(normed + places, (total * scale * factors).to(normed.dtype.element_ty), mask=inside)


def add_norm(
    x: torch.Tensor | None, residual: torch.Tensor, weight: torch.Tensor, normed: torch.Tensor, eps: float
) -> Launch:
    """Add `x` to `residual`, if there is one, and write the normalised sum times `weight` to `normed`.

    All but `weight` [width] are contiguous [M, width].
    """
    rows, width = residual.shape
    padded = triton.next_power_of_2(width)
    together = max(NUMBERS // padded, 1)
    return Launch(
        kernel=_add_norm,
        grid=(triton.cdiv(rows, together),),
        arguments={
            "x": residual if x is None else x,
            "residual": residual,
            "weight": weight,
            "normed": normed,
            "rows": rows,
            "width": width,
            "eps": eps,
        },
        constants={"ROWS": together, "WIDTH": padded, "ADD": x is not None},
        num_warps=8 if width > 4096 else 4,
    )


def add_norm_reference(
    x: torch.Tensor | None, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new residual and what is normalised of it, in float64."""
    total = residual.double() if x is None else (residual.double() + x.double()).to(residual.dtype).double()
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + eps)
    return total, total * scale * weight.double()

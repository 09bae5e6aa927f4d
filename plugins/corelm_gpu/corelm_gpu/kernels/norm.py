"""Root mean square normalisation (arXiv:1910.07467), after an addition to the residual stream."""

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch


@triton.jit
def _add_norm(x, residual, weight, normed, width, eps, WIDTH: tl.constexpr, ADD: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, WIDTH)
    inside = columns < width
    total = tl.load(residual + row + columns, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        total += tl.load(x + row + columns, mask=inside, other=0.0).to(tl.float32)
        # What later layers see is what was stored, so it is also what is normalised.
        rounded = total.to(residual.dtype.element_ty)
        tl.store(residual + row + columns, rounded, mask=inside)
        total = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total) / width + eps)
    factors = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed + row + columns, (total * scale * factors).to(normed.dtype.element_ty), mask=inside)


def add_norm(
    x: torch.Tensor | None, residual: torch.Tensor, weight: torch.Tensor, normed: torch.Tensor, eps: float
) -> Launch:
    """Add `x` to `residual`, if there is one, and write the normalised sum times `weight` to `normed`.

    All but `weight` [width] are contiguous [M, width].
    """
    rows, width = residual.shape
    return Launch(
        kernel=_add_norm,
        grid=(rows,),
        arguments={
            "x": residual if x is None else x,
            "residual": residual,
            "weight": weight,
            "normed": normed,
            "width": width,
            "eps": eps,
        },
        constants={"WIDTH": triton.next_power_of_2(width), "ADD": x is not None},
        num_warps=8 if width > 4096 else 4,
    )


def add_norm_reference(
    x: torch.Tensor | None, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The new residual and what is normalised of it, in float64."""
    total = residual.double() if x is None else (residual.double() + x.double()).to(residual.dtype).double()
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + eps)
    return total, total * scale * weight.double()

"""The gate of a feed-forward layer: SiLU (arXiv:1702.03118) of one half times the other."""

import torch
import torch.nn.functional as F  # noqa: N812
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch

COLUMNS = 1024
"""Of one row, for one program."""


@triton.jit
def _silu_mul(gate, up, product, width, gate_stride, up_stride, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < width
    x = tl.load(gate + row * gate_stride + columns, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(up + row * up_stride + columns, mask=inside, other=0.0).to(tl.float32)
    result = x / (1.0 + tl.exp(-x)) * y
    tl.store(product + row * width + columns, result.to(product.dtype.element_ty), mask=inside)


def silu_mul(gate: torch.Tensor, up: torch.Tensor, product: torch.Tensor) -> Launch:
    """Write ``silu(gate) * up`` to `product` [M, width], which is contiguous; rows of the others may lie apart."""
    rows, width = product.shape
    return Launch(
        kernel=_silu_mul,
        grid=(rows, triton.cdiv(width, COLUMNS)),
        arguments={
            "gate": gate,
            "up": up,
            "product": product,
            "width": width,
            "gate_stride": gate.stride(0),
            "up_stride": up.stride(0),
        },
        constants={"COLUMNS": COLUMNS},
    )


def silu_mul_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The product in float64."""
    return F.silu(gate.double()) * up.double()

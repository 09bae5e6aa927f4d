"""The gate of a feed-forward layer: SiLU (arXiv:1702.03118) of one half times the other."""

import torch
import torch.nn.functional as F  # noqa: N812
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch

NUMBERS = 1024
"""Of one row, or of several short ones, for one program."""


@triton.jit(do_not_specialize=["rows"])
def _silu_mul(gate, up, product, rows, width, gate_stride, up_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    columns = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    inside = (row < rows) & (columns < width)
    x = tl.load(gate + row * gate_stride + columns, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(up + row * up_stride + columns, mask=inside, other=0.0).to(tl.float32)
    result = x / (1.0 + tl.exp(-x)) * y
    tl.store(product + row * width + columns, result.to(product.dtype.element_ty), mask=inside)


def silu_mul(gate: torch.Tensor, up: torch.Tensor, product: torch.Tensor) -> Launch:
    """Write ``silu(gate) * up`` to `product` [M, width], which is contiguous; rows of the others may lie apart."""
    rows, width = product.shape
    columns = min(NUMBERS, triton.next_power_of_2(width))
    together = NUMBERS // columns
    return Launch(
        kernel=_silu_mul,
        grid=(triton.cdiv(rows, together), triton.cdiv(width, columns)),
        arguments={
            "gate": gate,
            "up": up,
            "product": product,
            "rows": rows,
            "width": width,
            "gate_stride": gate.stride(0),
            "up_stride": up.stride(0),
        },
        constants={"ROWS": together, "COLUMNS": columns},
    )


def silu_mul_reference(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The product in float64."""
    return F.silu(gate.double()) * up.double()

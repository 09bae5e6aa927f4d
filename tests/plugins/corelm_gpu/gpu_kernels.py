"""What the tests of kernels share: poisoned outputs and fresh random inputs on the device there is."""

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = [torch.float32, torch.float16, *([torch.bfloat16] if DEVICE.type == "cuda" else [])]
"""The interpreter computes no products in bfloat16."""


def poisoned(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """An output that shows what was not written."""
    return torch.full(shape, float("nan"), dtype=dtype, device=DEVICE)


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE).to(dtype)


def ints(values: list[int] | list[list[int]]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def assert_close(found: torch.Tensor, wanted: torch.Tensor, *, rows: torch.Tensor | slice = slice(None)) -> None:
    """Within the rounding of the result's type and of what was summed up in it."""
    tolerance = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}[found.dtype]
    torch.testing.assert_close(found[rows].double().cpu(), wanted[rows].cpu(), rtol=tolerance, atol=tolerance)

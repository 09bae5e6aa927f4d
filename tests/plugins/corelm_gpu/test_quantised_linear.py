import pytest
import torch
from corelm_gpu.kernels.quantised_linear import dequantised, quantised_linear
from gpu_kernels import DEVICE, DTYPES, assert_close, poisoned, random


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("nibbles", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 32, 1), (3, 160, 70), (17, 576, 64), (65, 64, 130)])
def test_product(rows, inputs, outputs, affine, nibbles, dtype):
    low, high, kind = (0, 256, torch.uint8) if nibbles else (-128, 128, torch.int8)
    weights = torch.randint(low, high, (outputs, inputs // 2 if nibbles else inputs), device=DEVICE).to(kind)
    scales = random(outputs, inputs // 32, dtype=torch.float16) * (0.02 if nibbles else 0.002)
    offsets = random(outputs, inputs // 32, dtype=torch.float16) * 0.1 if affine else None
    bias = random(outputs, dtype=dtype) if affine else None
    x = random(rows, inputs + 8, dtype=dtype)[:, :inputs]
    y = poisoned(rows, outputs, dtype=dtype)
    quantised_linear(x, weights, scales, offsets, bias, y).run()
    wanted = x.double() @ dequantised(weights, scales, offsets).T + (0 if bias is None else bias.double())
    if dtype == torch.float16:
        # Weights are rounded to float16 before the product.
        torch.testing.assert_close(y.double(), wanted, rtol=2e-2, atol=2e-2)
    else:
        assert_close(y, wanted)

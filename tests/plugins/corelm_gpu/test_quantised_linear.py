import pytest
from corelm_gpu.kernels.dequantise import dequantise_reference
from corelm_gpu.kernels.quantised_linear import quantised_linear
from corelm_gpu.quantised import keep
from gpu_kernels import DEVICE, DTYPES, assert_close, poisoned, random
from quantised_blocks import random_weight

CASES = [
    ("Q4_0", 1, 32, 1),
    ("Q4_0", 17, 576, 64),
    ("Q4_1", 3, 160, 70),
    ("Q5_0", 3, 96, 5),
    ("Q5_1", 16, 64, 130),
    ("Q8_0", 65, 96, 67),
    ("Q4_K", 5, 256, 65),
    ("Q5_K", 2, 512, 3),
    ("Q6_K", 17, 256, 66),
]
"""Encoding, rows, inputs and outputs: one of each, multiples of nothing, and a part of a tile more than one."""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("encoding", "rows", "inputs", "outputs"), CASES)
def test_product(encoding, rows, inputs, outputs, dtype):
    weight = keep(random_weight(encoding, outputs, inputs), DEVICE)
    bias = random(outputs, dtype=dtype) if rows % 2 else None
    x = (random(rows, inputs + 8, dtype=dtype) / inputs**0.5)[:, :inputs]
    y = poisoned(rows, outputs, dtype=dtype)
    quantised_linear(x, weight, bias, y).run()
    rounded = dequantise_reference(weight).to(dtype).double()
    wanted = x.double() @ rounded.T + (0 if bias is None else bias.double())
    assert_close(y, wanted)

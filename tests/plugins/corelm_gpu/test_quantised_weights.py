"""What is kept of GGUF's blocks is what they say."""

import numpy as np
import pytest
import torch
from corelm_gpu.kernels.dequantise import dequantise, dequantise_reference
from corelm_gpu.quantised import keep
from corelm_torch.weights import Encoding, Weight
from gpu_kernels import DEVICE, poisoned
from quantised_blocks import SCALES, random_weight


@pytest.mark.parametrize("encoding", SCALES)
def test_kept_values_are_exact(encoding):
    weight = random_weight(encoding, 5, 256)
    kept = keep(weight, DEVICE)
    assert kept.shape == (5, 256)
    assert all(tensor.is_contiguous() for tensor in (kept.weights, kept.scales))
    assert np.array_equal(dequantise_reference(kept).float().cpu().numpy(), weight.values())


@pytest.mark.parametrize("encoding", SCALES)
def test_the_kernel_gives_the_same_values(encoding):
    weight = random_weight(encoding, 6, 768)
    found = poisoned(6, 768, dtype=torch.float32)
    dequantise(keep(weight, DEVICE), found).run()
    assert np.array_equal(found.cpu().numpy(), weight.values())


def test_rows_of_one_block():
    weight = random_weight("Q8_0", 3, 32)
    kept = keep(weight, DEVICE)
    assert kept.weights.is_contiguous()
    assert np.array_equal(dequantise_reference(kept).float().cpu().numpy(), weight.values())


@pytest.mark.parametrize(
    ("encoding", "bits"), [("Q4_0", 4.5), ("Q4_1", 5), ("Q8_0", 8.5), ("Q4_K", 4.625), ("Q6_K", 8.5625)]
)
def test_memory(encoding, bits):
    kept = keep(random_weight(encoding, 4, 512), DEVICE)
    tensors = [value for value in map(kept.__getattribute__, kept.__slots__) if isinstance(value, torch.Tensor)]
    assert sum(tensor.nbytes for tensor in tensors) * 8 == bits * 4 * 512


def test_plain_weights_are_not_kept():
    weight = Weight(name="weight", shape=(2, 32), encoding=Encoding.F16, data=np.zeros((2, 64), np.uint8), file="none")
    assert keep(weight, DEVICE) is None

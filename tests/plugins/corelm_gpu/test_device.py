"""What a device is asked for, and what it cannot give."""

import sys

import pytest
import torch
import triton
from corelm_gpu.device import choose_dtype, choose_kv_dtype, find_device
from corelm_gpu.plugin import create
from gpu_tiny import make_executor

from corelm.api import ModelLoadError


@pytest.fixture
def device(monkeypatch):
    """A CUDA device of the capability that is appended to a list."""
    capability = []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability[-1])
    return torch.device("cuda", 0), capability


def test_the_cache_has_the_type_of_activations_unless_told(device):
    assert choose_kv_dtype("auto", torch.float16, device[0]) == torch.float16


@pytest.mark.parametrize("capability", [(8, 9), (9, 0), (10, 0)])
def test_fp8(device, capability):
    device[1].append(capability)
    assert choose_kv_dtype("fp8", torch.bfloat16, device[0]) == torch.float8_e4m3fn


def test_fp8_on_old_devices_is_refused(device):
    device[1].append((8, 6))
    with pytest.raises(ModelLoadError, match=r"Some GPU has the compute capability 8\.6; .* 8\.9"):
        choose_kv_dtype("fp8", torch.bfloat16, device[0])


def test_fp8_with_rocm_is_refused(device, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    with pytest.raises(ModelLoadError, match="Some GPU with ROCm"):
        choose_kv_dtype("fp8", torch.bfloat16, device[0])


@pytest.fixture
def on_a_machine(monkeypatch):
    """As if kernels were compiled, for so many devices of a capability."""

    def machine(count, capability=(9, 0)):
        monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda number: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "Some GPU")
        monkeypatch.setattr(torch.cuda, "set_device", lambda number: None)

    return machine


def test_a_device_is_found(on_a_machine):
    on_a_machine(2, (8, 0))
    assert find_device(1) == torch.device("cuda", 1)


@pytest.mark.parametrize(
    ("count", "capability", "words"),
    [
        (0, (9, 0), "found no device .*built for CUDA.*--executor cpu"),
        (1, (9, 0), "There is no device 1: this process sees 1"),
        (2, (7, 5), "Some GPU has the compute capability 7.5; the executor gpu needs 8.0 or higher"),
    ],
)
def test_devices_that_cannot_be_used_are_refused(on_a_machine, count, capability, words):
    on_a_machine(count, capability)
    with pytest.raises(ModelLoadError, match=words):
        find_device(1)


def test_types_that_it_does_not_compute_in_are_refused():
    with pytest.raises(ModelLoadError, match="cannot compute in int4; choose one of float32, float16, bfloat16"):
        choose_dtype("int4")


def test_without_triton_it_is_refused(monkeypatch, tiny_llama):
    context = make_executor(tiny_llama)._context
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(ModelLoadError, match=r"needs PyTorch and Triton, which cannot be imported.*--executor cpu"):
        create(context)

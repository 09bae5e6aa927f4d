"""What a device is asked for, and what it cannot give."""

import pytest
import torch
from corelm_gpu.device import choose_kv_dtype

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

"""Every parameter is filled exactly once, or loading fails with a reason."""

import gguf
import numpy as np
import pytest
import torch
from corelm_torch.models.assign import assign_weights
from corelm_torch.models.layers import Linear
from corelm_torch.weights import Encoding, Weight

from corelm.api import ModelLoadError

CPU = torch.device("cpu")
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def weight(name: str, *shape: int, encoding: str = "F32", file: str = "a.safetensors") -> Weight:
    values = torch.full(shape, 1.5, dtype=DTYPES[encoding])
    data = values.view(shape[0], -1).view(torch.uint8).numpy()
    return Weight(name=name, shape=shape, encoding=Encoding(encoding), data=data, file=file)


def assign(*weights: Weight, module: torch.nn.Module | None = None) -> list[tuple[float, str]]:
    steps: list[tuple[float, str]] = []
    module = module or torch.nn.Linear(3, 2)
    assign_weights(module, weights, device=CPU, progress=lambda fraction, text: steps.append((fraction, text)))
    return steps


@pytest.mark.parametrize("encoding", DTYPES)
def test_values_are_cast_to_the_parameter_and_progress_is_told(encoding):
    module = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
    steps = assign(weight("weight", 2, 3, encoding=encoding), weight("bias", 2), module=module)
    assert module.weight.dtype == torch.bfloat16
    assert torch.equal(module.weight, torch.full((2, 3), 1.5, dtype=torch.bfloat16))
    assert torch.equal(module.bias, torch.full((2,), 1.5, dtype=torch.bfloat16))
    assert steps == [(0.5, "weight"), (1.0, "bias")]


def test_quantised_weights_are_assigned_by_value():
    module = torch.nn.Linear(32, 2, bias=False)
    values = np.linspace(-1, 1, 64, dtype=np.float32).reshape(2, 32)
    blocks = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    assign(Weight(name="weight", shape=(2, 32), encoding=Encoding.Q8_0, data=blocks, file="a.gguf"), module=module)
    expected = gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(module.weight.detach().numpy(), expected)


def test_an_executor_keeps_what_it_likes_of_linear_layers():
    module = torch.nn.ModuleDict(
        {
            "kept": Linear(3, 2, bias=True, dtype=torch.float32),
            "left": Linear(3, 2, bias=False, dtype=torch.float32),
            "other": torch.nn.Linear(3, 2, bias=False),
        }
    )
    weights = [weight(f"{name}.weight", 2, 3) for name in module] + [weight("kept.bias", 2)]
    assign_weights(
        module,
        weights,
        device=CPU,
        progress=lambda fraction, text: None,
        keep=lambda weight: None if weight.name.startswith("left") else weight,
    )
    assert module["kept"].weight is weights[0]
    for parameter in (module["kept"].bias, module["left"].weight, module["other"].weight):
        assert (parameter == 1.5).all()


@pytest.mark.parametrize(
    ("weights", "parts"),
    [
        ([weight("weight", 2, 3), weight("scale", 2)], ["a.safetensors", "'scale'"]),
        ([weight("weight", 2, 3), weight("weight", 2, 3, file="b")], ["b: ", "'weight'", "a.safetensors"]),
        ([weight("weight", 3, 2)], ["a.safetensors", "'weight'", "[3, 2]", "[2, 3]"]),
        ([weight("weight", 2, 3)], ["1 tensors", "bias", "a.safetensors"]),
        ([], ["2 tensors", "bias, weight"]),
    ],
)
def test_what_does_not_fit_is_named(weights, parts):
    with pytest.raises(ModelLoadError) as caught:
        assign(*weights)
    for part in parts:
        assert part in str(caught.value)


def test_long_lists_of_missing_tensors_are_cut():
    module = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(9))
    with pytest.raises(ModelLoadError, match="18 tensors") as caught:
        assign(module=module)
    assert str(caught.value).count(".weight") + str(caught.value).count(".bias") == 5

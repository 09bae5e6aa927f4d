"""Every parameter is filled exactly once, or loading fails with a reason."""

import pytest
import torch
from corelm_torch.weights import Weight, assign_weights

from corelm.api import ModelLoadError


def weight(name: str, *shape: int, dtype: torch.dtype = torch.float32, file: str = "a.safetensors") -> Weight:
    return Weight(name=name, tensor=torch.full(shape, 1.5, dtype=dtype), file=file)


def assign(
    *weights: Weight, module: torch.nn.Module | None = None, total: int | None = None
) -> list[tuple[float, str]]:
    steps: list[tuple[float, str]] = []
    module = module or torch.nn.Linear(3, 2)
    assign_weights(module, weights, total=total, progress=lambda fraction, text: steps.append((fraction, text)))
    return steps


def test_values_are_cast_to_the_parameter_and_progress_is_told():
    module = torch.nn.Linear(3, 2, dtype=torch.bfloat16)
    steps = assign(weight("weight", 2, 3), weight("bias", 2, dtype=torch.float16), module=module)
    assert module.weight.dtype == torch.bfloat16
    assert torch.equal(module.weight, torch.full((2, 3), 1.5, dtype=torch.bfloat16))
    assert torch.equal(module.bias, torch.full((2,), 1.5, dtype=torch.bfloat16))
    assert steps == [(0.5, "weight"), (1.0, "bias")]


def test_progress_is_out_of_the_given_total():
    assert assign(weight("weight", 2, 3), weight("bias", 2), total=4) == [(0.25, "weight"), (0.5, "bias")]


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

"""Fill a module's parameters from a checkpoint."""

from collections.abc import Iterable

import torch
from torch import nn

from corelm.api import Progress
from corelm_torch.models.layers import Linear
from corelm_torch.models.model import Keep
from corelm_torch.weights import Encoding, Weight, check_weights

_DTYPES = {
    Encoding.F64: torch.float64,
    Encoding.F32: torch.float32,
    Encoding.F16: torch.float16,
    Encoding.BF16: torch.bfloat16,
}


def assign_weights(
    module: nn.Module, weights: Iterable[Weight], *, device: torch.device, progress: Progress, keep: Keep | None = None
) -> None:
    """Put each weight into the parameter of its name, cast to the parameter's dtype, on `device`.

    Raises `ModelLoadError` unless every parameter is assigned exactly once, from a tensor of its shape.
    """
    parameters = dict(module.named_parameters())
    shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    for count, weight in enumerate(check_weights(weights, shapes), start=1):
        owner, _, name = weight.name.rpartition(".")
        layer = module.get_submodule(owner)
        if keep is not None and isinstance(layer, Linear) and name == "weight" and (kept := keep(weight)) is not None:
            layer.keep(kept)
        else:
            values = torch.empty(weight.shape, dtype=parameters[weight.name].dtype, device=device)
            setattr(layer, name, nn.Parameter(values.copy_(_tensor(weight)), requires_grad=False))
        progress(count / len(parameters), weight.name)


def _tensor(weight: Weight) -> torch.Tensor:
    """The numbers; those that torch has a dtype for as they are stored."""
    dtype = _DTYPES.get(weight.encoding)
    if dtype is None:
        return torch.from_numpy(weight.values())
    return torch.from_numpy(weight.data).view(dtype).view(weight.shape)

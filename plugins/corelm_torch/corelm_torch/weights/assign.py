"""Fill a module's parameters from a checkpoint."""

from collections.abc import Iterable

import torch

from corelm.api import ModelLoadError, Progress
from corelm_torch.weights.weight import Weight

_NAMES_IN_MESSAGE = 5


@torch.no_grad()
def assign_weights(
    module: torch.nn.Module, weights: Iterable[Weight], *, total: int | None, progress: Progress
) -> None:
    """Copy each weight into the parameter of its name, cast to the parameter's dtype.

    `total` is the expected number of weights, for `progress`; None takes the number of parameters. Raises
    `ModelLoadError` unless every parameter is assigned exactly once, from a tensor of its shape.
    """
    parameters = dict(module.named_parameters())
    total = len(parameters) if total is None else total
    source: dict[str, str] = {}
    for weight in weights:
        parameter = parameters.get(weight.name)
        if parameter is None:
            raise ModelLoadError(f"{weight.file}: tensor {weight.name!r} does not belong to this model")
        if weight.name in source:
            raise ModelLoadError(f"{weight.file}: tensor {weight.name!r} was already in {source[weight.name]}")
        if weight.tensor.shape != parameter.shape:
            raise ModelLoadError(
                f"{weight.file}: tensor {weight.name!r} has the shape {list(weight.tensor.shape)}, "
                f"but the model's configuration asks for {list(parameter.shape)}"
            )
        parameter.copy_(weight.tensor)
        source[weight.name] = weight.file
        progress(min(1.0, len(source) / total), weight.name)
    _check_complete(parameters.keys() - source.keys(), source.values())


def _check_complete(missing: set[str], files: Iterable[str]) -> None:
    if not missing:
        return
    some = ", ".join(sorted(missing)[:_NAMES_IN_MESSAGE])
    where = ", ".join(sorted(set(files))[:_NAMES_IN_MESSAGE]) or "the checkpoint, which is empty"
    raise ModelLoadError(f"{len(missing)} tensors that the model needs are not in {where}: {some}")

"""Whether a checkpoint has the weights that its model needs."""

from collections.abc import Iterable, Iterator, Mapping

from corelm.api import ModelLoadError
from corelm_torch.weights.weight import Weight

_NAMES_IN_MESSAGE = 5


def check_weights(weights: Iterable[Weight], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Weight]:
    """Yield `weights`. Raises `ModelLoadError` unless each name in `shapes` comes exactly once, in its shape."""
    source: dict[str, str] = {}
    for weight in weights:
        expected = shapes.get(weight.name)
        if expected is None:
            raise ModelLoadError(f"{weight.file}: tensor {weight.name!r} does not belong to this model")
        if weight.name in source:
            raise ModelLoadError(f"{weight.file}: tensor {weight.name!r} was already in {source[weight.name]}")
        if weight.shape != expected:
            raise ModelLoadError(
                f"{weight.file}: tensor {weight.name!r} has the shape {list(weight.shape)}, "
                f"but the model's configuration asks for {list(expected)}"
            )
        source[weight.name] = weight.file
        yield weight
    _check_complete(shapes.keys() - source.keys(), source.values())


def _check_complete(missing: set[str], files: Iterable[str]) -> None:
    if not missing:
        return
    some = ", ".join(sorted(missing)[:_NAMES_IN_MESSAGE])
    where = ", ".join(sorted(set(files))[:_NAMES_IN_MESSAGE]) or "the checkpoint, which is empty"
    raise ModelLoadError(f"{len(missing)} tensors that the model needs are not in {where}: {some}")

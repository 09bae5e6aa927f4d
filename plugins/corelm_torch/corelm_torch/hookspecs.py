"""The hook that this library adds, for plugins that bring model architectures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corelm.api import RegisterExtension, ResolvedModel

if TYPE_CHECKING:
    import torch

    from corelm_torch.config import ModelConfig, ModelShape
    from corelm_torch.models import Model
    from corelm_torch.weights import Weight


@dataclass(frozen=True, kw_only=True, slots=True)
class PlainModel:
    """A model of which executors may compute every part with kernels of their own, and never call `ModelParts.build`.

    They may also keep what they make of the weights: these depend on nothing but `config` and the files' content.
    """

    config: "ModelConfig"
    weights: "Callable[[], Iterator[Weight]]"
    """Reads the checkpoint: every parameter of the model exactly once, under its name. Raises `ModelLoadError`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelParts:
    """What an executor needs to run a checkpoint."""

    config: "ModelShape"
    """What the executor sizes its memory and its kernels by: layers, heads, attention windows, lengths."""
    build: "Callable[[torch.dtype], Model]"
    """Makes the model, to compute in that type. A `LlamaModel` can have layers of its own."""
    plain: PlainModel | None = None
    """The model once more, if it is a `LlamaModel` with layers of its own and its configuration says all about it."""
    whose: str = "its plugin's"
    """Whose layers `build` makes, to be told at start-up."""


def corelm_torch_register_models(register: RegisterExtension[ResolvedModel, ModelParts]) -> None:
    """Register architectures, under the name that ``config.json`` has in ``architectures``, such as
    ``LlamaForCausalLM``, or a GGUF file in ``general.architecture``, such as ``llama``.

    The factory is given the files and reads their configuration; it raises `ModelLoadError` if that is damaged or
    asks for what the model does not do. Import torch in `ModelParts.build` only, as not every executor needs it.
    """

"""The hook that this library adds, for plugins that bring model architectures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from corelm.api import RegisterExtension, ResolvedModel

if TYPE_CHECKING:
    import torch

    from corelm_torch.config import ModelConfig
    from corelm_torch.models import LlamaModel
    from corelm_torch.weights import Weight


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelParts:
    """What an executor needs to run a checkpoint."""

    config: "ModelConfig"
    """What the executor sizes its memory and its kernels by: layers, heads, attention windows, lengths."""
    build: "Callable[[torch.dtype], LlamaModel]"
    """Makes the model on the meta device. Another architecture is a `LlamaModel` with layers of its own."""
    weights: "Callable[[], Iterator[Weight]]"
    """Reads the checkpoint: every parameter of the model exactly once, under its name. Raises `ModelLoadError`."""
    plain: bool = False
    """Whether `config` says all about the model, a `LlamaModel` whose layers are its own.

    Then an executor may compute it with other kernels, from `config` and `weights`, and never call `build`. It may also
    keep what it makes of the weights: they depend on nothing but `config` and the content of the files.
    """


def corelm_torch_register_models(register: RegisterExtension[ResolvedModel, ModelParts]) -> None:
    """Register architectures, under the name that ``config.json`` has in ``architectures``, such as
    ``LlamaForCausalLM``, or a GGUF file in ``general.architecture``, such as ``llama``.

    The factory is given the files and reads their configuration; it raises `ModelLoadError` if that is damaged or
    asks for what the model does not do. Import torch in `ModelParts.build` only, as not every executor needs it.
    """

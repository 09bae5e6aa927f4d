"""From a model's files to what an executor needs to run it, whichever plugin knows the architecture.

Needs no torch.
"""

from corelm_gguf.header import read_gguf_header

from corelm.api import ModelLoadError, PluginError, ResolvedModel
from corelm_torch.config import check_config
from corelm_torch.config.fields import Fields
from corelm_torch.config.huggingface import read_architecture, read_json_object
from corelm_torch.hookspecs import ModelParts
from corelm_torch.plugin import architectures


def load_parts(model: ResolvedModel) -> ModelParts:
    """Read the configuration of `model`. Raises `ModelLoadError` if it is damaged, or its architecture unknown."""
    name = _architecture(model)
    try:
        parts = architectures().create(name, model)
    except PluginError as error:
        raise ModelLoadError(f"{model.path}: architecture {name!r} is not supported: {error}") from error
    check_config(parts.config, model.path)
    return parts


def _architecture(model: ResolvedModel) -> str:
    if model.format == "gguf":
        return Fields(read_gguf_header(model.path).metadata, model.path).text("general.architecture")
    path = model.path / "config.json"
    return read_architecture(Fields(read_json_object(path), path))

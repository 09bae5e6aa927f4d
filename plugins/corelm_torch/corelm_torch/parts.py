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
from corelm_torch.transformers_parts import transformers_parts, why_not_transformers


def load_parts(model: ResolvedModel) -> ModelParts:
    """Read the configuration of `model`. Raises `ModelLoadError` if it is damaged, or its architecture unknown."""
    parts = _find_parts(model, _architecture(model))
    check_config(parts.config, model.path)
    return parts


def _find_parts(model: ResolvedModel, name: str) -> ModelParts:
    """What no plugin knows, transformers may."""
    known, why_not = architectures(), ""
    if model.format == "huggingface" and name not in known.names:
        why_not = why_not_transformers(name)
        if not why_not:
            return transformers_parts(model, name)
    try:
        return known.create(name, model)
    except PluginError as error:
        reasons = "; ".join(filter(None, [str(error), why_not]))
        raise ModelLoadError(f"{model.path}: architecture {name!r} is not supported: {reasons}") from error


def _architecture(model: ResolvedModel) -> str:
    if model.format == "gguf":
        return Fields(read_gguf_header(model.path).metadata, model.path).text("general.architecture")
    path = model.path / "config.json"
    return read_architecture(Fields(read_json_object(path), path))

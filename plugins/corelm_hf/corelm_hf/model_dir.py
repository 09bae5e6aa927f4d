"""Model directories: what they must hold."""

import json
import re
from pathlib import Path
from typing import Any

from corelm.api import ModelLoadError, ResolvedModel

_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; empty if there is no such file. Raises `ModelLoadError` on anything else."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"cannot read {path}: it holds no JSON object")
    return content


def resolve_directory(path: Path, name: str) -> ResolvedModel:
    """The model in the directory `path`: config.json with safetensors weights, or a single GGUF.

    Raises `ModelLoadError` that says what is missing.
    """
    has_config = (path / "config.json").is_file()
    if any(path.glob("*.safetensors")) and has_config:
        _check_shards(path)
        return ResolvedModel(name=name, path=path, format="huggingface")
    gguf = _single_gguf(path)
    if gguf is not None:
        return ResolvedModel(name=name, path=gguf, format="gguf")
    if any(path.glob("*.safetensors")):
        raise ModelLoadError(f"{path} has weights but no config.json")
    if has_config:
        raise ModelLoadError(f"{path} has a config.json but no weights (*.safetensors)")
    raise ModelLoadError(f"{path} holds no model: neither a config.json with *.safetensors nor a .gguf file")


def _check_shards(path: Path) -> None:
    index = read_json(path / "model.safetensors.index.json")
    weight_map = index.get("weight_map", {})
    if not isinstance(weight_map, dict):
        raise ModelLoadError(f"cannot read {path / 'model.safetensors.index.json'}: weight_map is not an object")
    missing = sorted(str(file) for file in set(map(str, weight_map.values())) if not (path / file).is_file())
    if missing:
        raise ModelLoadError(f"{path} lacks {len(missing)} file(s) of its weights, among them {missing[0]}")


def _single_gguf(path: Path) -> Path | None:
    """The one GGUF model of a directory: its only file, or the first file of its only split model."""
    files = sorted(path.glob("*.gguf"))
    models = {(split[1], split[3]) if (split := _SPLIT.fullmatch(file.name)) else (file.name, "") for file in files}
    if len(models) > 1:
        raise ModelLoadError(f"{path} holds several .gguf models; name one of them, such as {files[0]}")
    if not files:
        return None
    split = _SPLIT.fullmatch(files[0].name)
    if split and int(split[2]) != 1:
        raise ModelLoadError(f"{path} lacks the first part of its split model: {split[1]}-00001-of-{split[3]}.gguf")
    return files[0]

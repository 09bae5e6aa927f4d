"""Models of the Hugging Face hub: the local cache first, then a download."""

from pathlib import Path

from corelm.api import ModelLoadError, ResolvedModel
from corelm_hf.model_dir import resolve_directory

_WANTED = ["*.json", "*.jinja", "*.safetensors"]
_UNWANTED = ["*/*", "consolidated*"]


def fetch(name: str) -> ResolvedModel:
    """The hub's model `name` (``org/name``), downloaded unless the cache has all of it.

    Raises `ModelLoadError` if it is in neither.
    """
    cached = _cached(name)
    return cached or resolve_directory(_download(name), name)


def _cached(name: str) -> ResolvedModel | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return resolve_directory(Path(snapshot_download(name, local_files_only=True)), name)
    except (LocalEntryNotFoundError, HFValidationError, ModelLoadError):
        return None


def _download(name: str) -> Path:
    from huggingface_hub import constants, snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_WANTED, ignore_patterns=_UNWANTED))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ModelLoadError(
            f"model {name} is neither a local path nor in the cache at {constants.HF_HUB_CACHE}, and downloading it"
            f" failed ({type(error).__name__}: {reason}); give the path of a model directory, or run"
            f" `hf download {name}` where the hub can be reached"
        ) from error

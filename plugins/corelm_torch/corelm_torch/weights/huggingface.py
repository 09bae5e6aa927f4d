"""Weights of a Hugging Face model directory: one safetensors file, or several with an index."""

from collections.abc import Iterator
from pathlib import Path

from corelm.api import ModelLoadError
from corelm_torch.config.huggingface import read_json_object
from corelm_torch.weights.mapping import map_file
from corelm_torch.weights.safetensors_header import SafetensorsEntry, read_safetensors_header
from corelm_torch.weights.weight import PLAIN, Encoding, Weight

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_NAMES_IN_MESSAGE = 5


def iter_huggingface_weights(directory: Path) -> Iterator[Weight]:
    """Check all files in `directory`, then yield their tensors, which are mapped from disk. Raises `ModelLoadError`."""
    shards = _find_shards(directory)
    entries = {path: _checked_entries(path, listed) for path, listed in shards.items()}
    return _read(entries)


def _find_shards(directory: Path) -> dict[Path, list[str] | None]:
    """The files to read, with the tensors to take from each; None takes all."""
    if (directory / _SINGLE).is_file():
        return {directory / _SINGLE: None}
    index = directory / _INDEX
    if index.is_file():
        return _read_index(index)
    if any(directory.glob("*.bin")):
        raise ModelLoadError(
            f"{directory} has only pickled weights (*.bin), which are not loaded because they can run code; "
            "convert them to safetensors"
        )
    raise ModelLoadError(f"{directory} has neither {_SINGLE} nor {_INDEX}")


def _read_index(index: Path) -> dict[Path, list[str] | None]:
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelLoadError(f"{index}: weight_map must be an object that names the file of each tensor")
    shards: dict[Path, list[str] | None] = {}
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise ModelLoadError(f"{index}: weight_map has {file!r} for tensor {name!r}, not the name of a file")
        listed = shards.setdefault(index.parent / file, [])
        if listed is not None:
            listed.append(name)
    missing = sorted(path.name for path in shards if not path.is_file())
    if missing:
        raise ModelLoadError(
            f"{index} lists {len(shards)} files, of which {len(missing)} are missing: "
            f"{', '.join(missing[:_NAMES_IN_MESSAGE])}"
        )
    return shards


def _checked_entries(path: Path, listed: list[str] | None) -> list[SafetensorsEntry]:
    entries = read_safetensors_header(path)
    names = list(entries) if listed is None else listed
    for name in names:
        if name not in entries:
            raise ModelLoadError(f"{path}: tensor {name!r} is missing, although {_INDEX} lists it")
        if entries[name].dtype not in PLAIN:
            raise ModelLoadError(
                f"{path}: tensor {name!r} has the dtype {entries[name].dtype}; supported are {', '.join(PLAIN)}"
            )
    return [entries[name] for name in names]


def _read(entries_by_file: dict[Path, list[SafetensorsEntry]]) -> Iterator[Weight]:
    for path, entries in entries_by_file.items():
        file = map_file(path)
        for entry in entries:
            rows = entry.shape[0] if entry.shape else 1
            yield Weight(
                name=entry.name,
                shape=entry.shape,
                encoding=Encoding(entry.dtype),
                data=file[entry.begin : entry.end].reshape(rows, -1),
                file=str(path),
            )

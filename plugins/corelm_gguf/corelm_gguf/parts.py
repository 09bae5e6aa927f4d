"""A GGUF model that may be split over several files (``name-00001-of-00003.gguf``). Needs no torch."""

import re
from pathlib import Path

from corelm.api import ModelLoadError
from corelm_gguf.header import GgufHeader, GgufTensorInfo, read_gguf_header

_PART_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
_MAX_PARTS = 99_999


def read_gguf_parts(path: Path) -> tuple[GgufHeader, ...]:
    """Read the headers of a model: one, or one per part. The first one has the model's metadata.

    `path` is the file, or the first part. Raises `ModelLoadError`, also if parts are missing.
    """
    first = read_gguf_header(path)
    count = first.metadata.get("split.count", 1)
    if not isinstance(count, int) or not 0 <= count <= _MAX_PARTS:
        raise ModelLoadError(f"{path}: split.count is {count!r}, not a number of files")
    if count <= 1:
        return (first,)
    paths = _part_paths(path, count)
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        raise ModelLoadError(f"{path} is part 1 of {count}; missing next to it: {', '.join(missing[:5])}")
    parts = (first, *(read_gguf_header(part) for part in paths[1:]))
    _check_parts(parts, count)
    return parts


def gguf_tensors(parts: tuple[GgufHeader, ...]) -> dict[str, GgufTensorInfo]:
    """The tensors of all parts."""
    return {name: tensor for part in parts for name, tensor in part.tensors.items()}


def _part_paths(path: Path, count: int) -> list[Path]:
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count:
        raise ModelLoadError(
            f"{path} is one of {count} parts of a model; the parts must be named like name-00001-of-{count:05}.gguf"
        )
    paths = [path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    if path != paths[0]:
        raise ModelLoadError(f"{path} is part {int(match['number'])} of {count}; name the first part, {paths[0].name}")
    return paths


def _check_parts(parts: tuple[GgufHeader, ...], count: int) -> None:
    for number, part in enumerate(parts):
        found = (part.metadata.get("split.no"), part.metadata.get("split.count"))
        if found != (number, count):
            raise ModelLoadError(
                f"{part.path} is not part {number + 1} of {count}: its split.no and split.count are {found}"
            )
    expected, present = parts[0].metadata.get("split.tensors.count"), len(gguf_tensors(parts))
    stored = sum(len(part.tensors) for part in parts)
    if not present == stored == expected:
        raise ModelLoadError(
            f"the parts of {parts[0].path} have {stored} tensors with {present} names, but should have {expected}"
        )

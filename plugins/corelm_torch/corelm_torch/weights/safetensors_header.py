"""Checks of safetensors files (https://huggingface.co/docs/safetensors) that say what is wrong with a damaged one."""

import itertools
import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corelm.api import ModelLoadError
from corelm_torch.weights.weight import PLAIN, Encoding

_LONGEST_HEADER = 100_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SafetensorsEntry:
    """Where a tensor lies. `begin` and `end` are bytes from the beginning of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """Checked against `begin` and `end` if `dtype` is one of `PLAIN`."""
    begin: int
    end: int


def read_safetensors_header(path: Path) -> dict[str, SafetensorsEntry]:
    """Read the header of `path` and check it against the size of the file.

    Raises `ModelLoadError`, unless the tensors fill the rest of the file exactly, without overlap or gap.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            head = file.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            _check_length(path, length, size)
            header = file.read(length)
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror or error}") from error
    entries = _entries(path, header)
    _check_layout(path, entries, 8 + length, size)
    return {entry.name: entry for entry in entries}


def _check_length(path: Path, length: int, size: int) -> None:
    if 8 + length > size:
        raise ModelLoadError(
            f"{path}: the header would end at byte {8 + length}, but the file has {size} bytes; "
            "it is truncated, damaged or not a safetensors file, fetch it again"
        )
    if length > _LONGEST_HEADER:
        raise ModelLoadError(f"{path}: the header has {length} bytes; {_LONGEST_HEADER} is the most that is allowed")


def _entries(path: Path, header: bytes) -> list[SafetensorsEntry]:
    try:
        values = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: the header is not valid JSON: {error}") from error
    if not isinstance(values, dict):
        raise ModelLoadError(f"{path}: the header is not a JSON object")
    start = 8 + len(header)
    return [_entry(path, start, name, value) for name, value in values.items() if name != "__metadata__"]


def _entry(path: Path, start: int, name: str, value: Any) -> SafetensorsEntry:
    match value:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(begin), int(end)]} if (
            all(type(length) is int and length > 0 for length in shape) and 0 <= begin <= end
        ):
            if dtype in PLAIN and math.prod(shape) * PLAIN[Encoding(dtype)].itemsize != end - begin:
                raise ModelLoadError(
                    f"{path}: tensor {name!r}, {dtype} {shape}, cannot have the {end - begin} bytes that are declared"
                )
            return SafetensorsEntry(name=name, dtype=dtype, shape=tuple(shape), begin=start + begin, end=start + end)
    raise ModelLoadError(f"{path}: the header's entry for tensor {name!r} is not valid")


def _check_layout(path: Path, entries: list[SafetensorsEntry], start: int, size: int) -> None:
    ordered = sorted(entries, key=lambda entry: (entry.begin, entry.end))
    expected = max((entry.end for entry in entries), default=start)
    if expected != size:
        raise ModelLoadError(
            f"{path}: the header declares a file of {expected} bytes, but it has {size}; "
            "it is truncated or damaged, fetch it again"
        )
    for before, after in itertools.pairwise(ordered):
        if before.end > after.begin:
            raise ModelLoadError(f"{path}: tensors {before.name!r} and {after.name!r} overlap")
        if before.end < after.begin:
            raise ModelLoadError(f"{path}: there is a gap between tensors {before.name!r} and {after.name!r}")
    if ordered and ordered[0].begin > start:
        raise ModelLoadError(f"{path}: there is a gap before tensor {ordered[0].name!r}")

"""A strict reader of GGUF headers (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Needs no torch.

Nothing in the file is believed before it is checked against the size of the file, so that a damaged or hostile
header ends in a `ModelLoadError` and never in a crash, a hang or a huge allocation. Arrays (a tokenizer's
vocabulary) are passed over unless they are asked for.
"""

import itertools
import math
import mmap
import struct
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from corelm.api import ModelLoadError

_SUPPORTED_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufTensorInfo:
    """Where a tensor lies."""

    name: str
    shape: tuple[int, ...]
    """Outermost dimension first, as in torch (GGUF itself writes the reverse)."""
    type: GGMLQuantizationType
    offset: int
    """In bytes, from the beginning of the file."""
    num_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class GgufHeader:
    """The header of one file; every tensor in it lies wholly inside the file."""

    path: Path
    metadata: dict[str, Any]
    """Scalars and strings, and the arrays that were asked for, as lists."""
    tensors: dict[str, GgufTensorInfo]


def read_gguf_header(path: Path, *, arrays: Container[str] = ()) -> GgufHeader:
    """Read and check the header of `path`, with the array values whose keys are in `arrays`.

    Raises `ModelLoadError`.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(4)
            if magic != b"GGUF":
                raise ModelLoadError(f"{path} is not a GGUF file: it begins with {magic!r}, not b'GGUF'")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _HeaderReader(path, data).read(arrays)
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror or error}") from error


class _HeaderReader:
    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._position = 4

    def read(self, arrays: Container[str]) -> GgufHeader:
        self._check_version(self._u32("the version"))
        num_tensors = self._u64("the number of tensors")
        num_entries = self._u64("the number of metadata entries")
        metadata = self._metadata(num_entries, arrays)
        raw = self._raw_tensors(num_tensors)
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
            raise self._error(f"general.alignment is {alignment!r}, not a power of two from 8 on")
        start = -(-self._position // alignment) * alignment
        tensors = {name: self._locate(name, *entry, start, alignment) for name, entry in raw.items()}
        self._check_overlap(tensors)
        return GgufHeader(path=self._path, metadata=metadata, tensors=tensors)

    def _check_version(self, version: int) -> None:
        if version in _SUPPORTED_VERSIONS:
            return
        if version & 0xFFFF == 0:
            raise self._error("it is in big-endian byte order, which is not supported")
        raise self._error(f"GGUF version {version} is not supported (only 2 and 3)")

    def _metadata(self, count: int, arrays: Container[str]) -> dict[str, Any]:
        seen: set[str] = set()
        metadata: dict[str, Any] = {}
        for _ in range(count):
            key = self._string("a metadata key")
            if key in seen:
                raise self._error(f"metadata key {key!r} appears twice")
            seen.add(key)
            kind = self._u32(key)
            if kind != _ARRAY:
                metadata[key] = self._string(key) if kind == _STRING else self._scalars(key, kind, 1)[0]
            elif key in arrays:
                metadata[key] = self._array(key)
            else:
                self._skip_array(key)
        return metadata

    def _array(self, key: str) -> list[Any]:
        kind, count = self._array_head(key)
        if kind == _STRING:
            return [self._string(key) for _ in range(count)]
        return list(self._scalars(key, kind, count))

    def _skip_array(self, key: str) -> None:
        kind, count = self._array_head(key)
        if kind != _STRING:
            self._take(count * struct.calcsize(self._format(key, kind)), key)
            return
        data, position, last, length = self._data, self._position, self._size - 8, _U64.unpack_from
        for _ in range(count):
            if position > last:
                raise self._truncated(key, position + 8)
            position += 8 + length(data, position)[0]
        self._position = position
        self._take(0, key)

    def _array_head(self, key: str) -> tuple[int, int]:
        kind, count = self._u32(key), self._u64(key)
        smallest = 8 if kind == _STRING else struct.calcsize(self._format(key, kind))
        if count * smallest > self._size - self._position:
            raise self._truncated(key, self._position + count * smallest)
        return kind, count

    def _raw_tensors(self, count: int) -> dict[str, tuple[tuple[int, ...], int, int]]:
        """Shape, type number and offset in the data section, by name."""
        tensors: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(count):
            name = self._string("a tensor's name")
            if name in tensors:
                raise self._error(f"tensor {name!r} appears twice")
            rank = self._u32(name)
            if not 1 <= rank <= _MAX_DIMENSIONS:
                raise self._error(f"tensor {name!r} has {rank} dimensions (1 to {_MAX_DIMENSIONS} are possible)")
            shape = tuple(reversed(struct.unpack_from(f"<{rank}Q", self._data, self._take(8 * rank, name))))
            tensors[name] = (shape, self._u32(name), self._u64(name))
        return tensors

    def _locate(
        self, name: str, shape: tuple[int, ...], type_number: int, offset: int, start: int, alignment: int
    ) -> GgufTensorInfo:
        try:
            kind = GGMLQuantizationType(type_number)
            block, block_bytes = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise self._error(f"tensor {name!r} has the unknown type number {type_number}") from None
        if min(shape) < 1 or shape[-1] % block:
            raise self._error(f"tensor {name!r} of type {kind.name} cannot have the shape {list(shape)}")
        if offset % alignment:
            raise self._error(f"tensor {name!r} lies at {offset}, which is not a multiple of {alignment}")
        num_bytes = math.prod(shape) // block * block_bytes
        if start + offset + num_bytes > self._size:
            raise self._truncated(f"tensor {name!r}", start + offset + num_bytes)
        return GgufTensorInfo(name=name, shape=shape, type=kind, offset=start + offset, num_bytes=num_bytes)

    def _check_overlap(self, tensors: dict[str, GgufTensorInfo]) -> None:
        ordered = sorted(tensors.values(), key=lambda tensor: tensor.offset)
        for before, after in itertools.pairwise(ordered):
            if before.offset + before.num_bytes > after.offset:
                raise self._error(f"tensors {before.name!r} and {after.name!r} overlap")

    def _scalars(self, key: str, kind: int, count: int) -> tuple[Any, ...]:
        layout = f"<{count}{self._format(key, kind)}"
        return struct.unpack_from(layout, self._data, self._take(struct.calcsize(layout), key))

    def _format(self, key: str, kind: int) -> str:
        if kind not in _SCALARS:
            raise self._error(f"{key!r} has a value of the unsupported type number {kind}")
        return _SCALARS[kind]

    def _string(self, what: str) -> str:
        length = self._u64(what)
        start = self._take(length, what)
        try:
            return self._data[start : start + length].decode()
        except UnicodeDecodeError:
            raise self._error(f"{what!r} at byte {start} is not UTF-8 text") from None

    def _u32(self, what: str) -> int:
        value: int = _U32.unpack_from(self._data, self._take(4, what))[0]
        return value

    def _u64(self, what: str) -> int:
        value: int = _U64.unpack_from(self._data, self._take(8, what))[0]
        return value

    def _take(self, count: int, what: str) -> int:
        """Move past `count` bytes and return where they begin."""
        start = self._position
        if start + count > self._size:
            raise self._truncated(what, start + count)
        self._position = start + count
        return start

    def _truncated(self, what: str, end: int) -> ModelLoadError:
        return self._error(
            f"{what} would end at byte {end}, but the file has {self._size} bytes; "
            "it is truncated or damaged, fetch it again"
        )

    def _error(self, problem: str) -> ModelLoadError:
        return ModelLoadError(f"{self._path}: {problem}")

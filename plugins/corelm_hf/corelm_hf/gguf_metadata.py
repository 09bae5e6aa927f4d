"""Reads the metadata of a GGUF file: strict, and in time and memory bounded by the file's size.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import struct
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corelm.api import ModelLoadError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_BOOL = 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "B", 10: "Q", 11: "q", 12: "d"}
_ENTRY_MIN = 8 + 4 + 1
"""Bytes that the smallest key-value pair takes: an empty key, a type and a one-byte value."""


def read_metadata(path: Path, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """The key-value pairs of the GGUF file at `path` whose key is `wanted`.

    Values are str, bool, int, float, a list of str, or an `array` of numbers. Raises `ModelLoadError` that tells
    apart: cannot be opened, not GGUF, unsupported version, truncated, malformed.
    """
    try:
        with open(path, "rb") as file:
            if file.read(4) != _MAGIC:
                raise ModelLoadError(f"{path} is not a GGUF file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(path, data).pairs(wanted)
    except OSError as error:
        raise ModelLoadError(f"cannot read {path}: {error.strerror}") from error


class _Reader:
    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._size = len(data)
        self._at = len(_MAGIC)

    def pairs(self, wanted: Callable[[str], bool]) -> dict[str, Any]:
        version = self._scalar("I")
        if version not in _VERSIONS:
            raise ModelLoadError(f"{self._path}: unsupported GGUF version {version}; versions 2 and 3 are supported")
        self._scalar("Q")
        count = self._scalar("Q")
        self._need(count * _ENTRY_MIN)
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self._string()
            if key in found:
                raise self._malformed(f"{key} appears twice")
            value = self._value(self._scalar("I"), keep=(keep := wanted(key)))
            if keep:
                found[key] = value
        return found

    def _need(self, size: int) -> None:
        if size > self._size - self._at:
            raise ModelLoadError(
                f"{self._path} is truncated: {size} bytes expected at byte {self._at}, but it ends at byte {self._size}"
            )

    def _malformed(self, what: str) -> ModelLoadError:
        return ModelLoadError(f"{self._path} is malformed near byte {self._at}: {what}")

    def _scalar(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        self._need(size)
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += size
        return value

    def _string(self) -> str:
        length = self._scalar("Q")
        self._need(length)
        start, self._at = self._at, self._at + length
        try:
            return self._data[start : self._at].decode()
        except UnicodeDecodeError as error:
            raise self._malformed("a string is not UTF-8") from error

    def _value(self, kind: int, *, keep: bool) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(keep=keep)
        if kind not in _SCALARS:
            raise self._malformed(f"unknown value type {kind}")
        value = self._scalar(_SCALARS[kind])
        return bool(value) if kind == _BOOL else value

    def _array(self, *, keep: bool) -> Any:
        kind, count = self._scalar("I"), self._scalar("Q")
        if kind == _STRING:
            return self._strings(count, keep=keep)
        if kind not in _SCALARS:
            raise self._malformed(f"an array holds values of type {kind}")
        values = array(_SCALARS[kind])
        size = count * values.itemsize
        self._need(size)
        if keep:
            values.frombytes(self._data[self._at : self._at + size])
        self._at += size
        return values

    def _strings(self, count: int, *, keep: bool) -> list[str]:
        self._need(count * 8)
        found = []
        for _ in range(count):
            value = self._string()
            if keep:
                found.append(value)
        return found

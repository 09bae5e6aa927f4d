"""Packed weights in a file.

The file begins with `_HEAD`: a magic word, then length and CRC-32 of a header in JSON, which follows. The memory of the
weights comes at the next multiple of `_PAGE`. The header has its CRC-32 in pieces of `_PIECE` bytes, so that several
threads can read and check.
"""

import json
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path
from typing import BinaryIO

from corelm_cpu.packed.layout import Kind, Layout, Matrix, PackedWeights, Vector
from corelm_cpu.packed.native import Bytes, allocate

_HEAD = struct.Struct("<8sII")
_MAGIC = b"corelmpw"
_PAGE = 4096
_PIECE = 2**24


class DamagedFileError(Exception):
    """A file does not have what it should have; the message says what."""


def write_packed(file: BinaryIO, key: str, weights: PackedWeights, threads: int) -> None:
    """Write `weights`, to be found under `key`. Raises `OSError`."""
    with ThreadPoolExecutor(threads) as pool:
        checksums = list(pool.map(zlib.crc32, _pieces(weights.data)))
    header = {
        "key": key,
        "bytes": len(weights.data),
        "checksums": checksums,
        "matrices": {name: astuple(matrix) for name, matrix in weights.matrices.items()},
        "vectors": {name: astuple(vector) for name, vector in weights.vectors.items()},
    }
    text = json.dumps(header).encode()
    head = _HEAD.pack(_MAGIC, len(text), zlib.crc32(text)) + text
    file.write(head.ljust(_data_begin(len(text)), b"\0"))
    file.write(weights.data.data)


def read_packed(path: Path, key: str, threads: int) -> PackedWeights:
    """Read what was written under `key`. Raises `OSError`, `MemoryError` and `DamagedFileError`."""
    with path.open("rb", buffering=0) as file, ThreadPoolExecutor(threads) as pool:
        magic, length, checksum = _HEAD.unpack(file.read(_HEAD.size).ljust(_HEAD.size, b"\0"))
        text = file.read(length) if magic == _MAGIC else b""
        if zlib.crc32(text) != checksum or not text:
            raise DamagedFileError(f"{path}: the header is damaged")
        header = json.loads(text)
        if header["key"] != key:
            raise DamagedFileError(f"{path}: it is for something else")
        data = allocate(header["bytes"])
        begin = _data_begin(length)

        def read(piece: memoryview, offset: int) -> int | None:
            return zlib.crc32(piece) if _fill(piece, file.fileno(), begin + offset) else None

        if list(pool.map(read, _pieces(data), range(0, len(data), _PIECE))) != header["checksums"]:
            raise DamagedFileError(f"{path}: the weights are truncated or damaged")
    matrices = {name: Matrix(Kind(kind), *rest) for name, (kind, *rest) in header["matrices"].items()}
    vectors = {name: Vector(*values) for name, values in header["vectors"].items()}
    return PackedWeights(data, Layout(matrices, vectors, len(data)))


def _data_begin(header_length: int) -> int:
    return -(-(_HEAD.size + header_length) // _PAGE) * _PAGE


def _pieces(data: Bytes) -> list[memoryview]:
    return [data.data[begin : begin + _PIECE] for begin in range(0, len(data), _PIECE)]


def _fill(piece: memoryview, descriptor: int, offset: int) -> bool:
    """Read from the file; whether there was enough."""
    filled = 0
    while filled < len(piece):
        count = os.preadv(descriptor, [piece[filled:]], offset + filled)
        if not count:
            return False
        filled += count
    return True

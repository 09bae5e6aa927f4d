"""What the library does for packed weights."""

import ctypes
import weakref
from ctypes import c_bool, c_int, c_int64, c_uint8, c_void_p
from functools import cache

import numpy as np
import numpy.typing as npt
from corelm_torch.sizing import gib

from corelm_cpu.kernels import library
from corelm_cpu.resources import available_memory

Bytes = npt.NDArray[np.uint8]


def allocate(num_bytes: int) -> Bytes:
    """Zeros that begin at a huge page and come in such where there are any.

    Freed with the last array that is made of it. Raises `MemoryError`, also if so much is not available: the system
    would promise it and end the process when it is used.
    """
    available = available_memory()
    address = _functions().corelm_memory_new(num_bytes) if num_bytes <= available else None
    if address is None:
        raise MemoryError(f"the weights take {gib(num_bytes)}, but only {gib(available)} of memory are available")
    memory = (c_uint8 * num_bytes).from_address(address)
    weakref.finalize(memory, _functions().corelm_memory_delete, address, num_bytes).atexit = False
    return np.ctypeslib.as_array(memory)


def matrix_bytes(kind: int, outputs: int, inputs: int) -> int:
    """Bytes that a packed matrix takes."""
    return int(_functions().corelm_matrix_bytes(kind, outputs, inputs))


def pack_rows(matrix: int, kind: int, first: int, stride: int, encoding: int, rows: Bytes, inputs: int) -> None:
    """Write `rows` [rows, bytes] into the matrix of `kind` at the address `matrix`; see ``native/linear/pack.h``."""
    assert rows.flags.c_contiguous
    arguments = matrix, kind, first, stride, encoding, rows.ctypes.data, len(rows), inputs
    packed = _functions().corelm_pack(*arguments)
    assert packed, f"no kernel makes kind {kind} of encoding {encoding}"


@cache
def _functions() -> ctypes.CDLL:
    kernels = library()
    signatures = {
        "corelm_memory_new": (c_void_p, [c_int64]),
        "corelm_memory_delete": (None, [c_void_p, c_int64]),
        "corelm_matrix_bytes": (c_int64, [c_int, c_int, c_int]),
        "corelm_pack": (c_bool, [c_void_p, c_int, c_int64, c_int64, c_int, c_void_p, c_int64, c_int]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(kernels, name)
        function.restype, function.argtypes = result, arguments
    return kernels

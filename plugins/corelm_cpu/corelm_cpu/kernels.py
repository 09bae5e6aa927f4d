"""The native kernels: a shared library that is compiled when this package is installed (see ``native/``)."""

import ctypes
import weakref
from ctypes import c_char_p, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from corelm_torch.arrays import Ints

LIBRARY = Path(__file__).with_name("_kernels.so")
REASON = Path(__file__).with_name("_kernels.txt")
"""Written in place of the library where it could not be built: why."""
CACHE_PADDING = 64
"""Bytes that must follow a cache: vectors may read beyond its end. See ``native/attention/layout.h`` for its layout."""
KVKind = Literal["bf16", "int8", "f32"]
"""What a cache holds: bfloat16, codes of one byte with a scale for each token and KV head, or float32."""
KV_KINDS: tuple[KVKind, ...] = ("bf16", "int8", "f32")
"""In the order of `CacheKind` in ``native/attention/layout.h``."""


class KernelsMissing(Exception):  # noqa: N818
    """There are no native kernels; the message says why."""


def kernels_name(level: str | None = None) -> str:
    """The name of the best kernels for this machine, or of those of a level. Raises `KernelsMissing`."""
    name = library().corelm_kernels(level and level.encode())
    if name is None:
        raise KernelsMissing(f"this machine has no {level}")
    return str(name.decode())


def check_heads(head_dim: int) -> None:
    """Raise `KernelsMissing` if there are no kernels for such heads."""
    if head_dim % 8:
        raise KernelsMissing(f"they need a head_dim in multiples of 8, not {head_dim}")


def block_bytes(kv_heads: int, head_dim: int, block_size: int, kv: KVKind = "bf16") -> int:
    """Bytes of a block of one layer's cache. Raises `KernelsMissing`."""
    return int(library().corelm_block_bytes(kv_heads, head_dim, block_size, KV_KINDS.index(kv)))


def window_of(window: int | None) -> int:
    """Tokens that a query sees, itself included, as the kernels take it."""
    return 2**62 if window is None else window


class PagedAttention:
    """Causal attention over a paged cache of any kind, which it reads in place.

    Cache, and queries, keys and values, which are float32 with a cache of such and else bfloat16, are given by their
    addresses. Not for two threads at once.
    """

    def __init__(
        self,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        block_size: int,
        threads: int,
        kv: KVKind = "bf16",
        level: str | None = None,
    ) -> None:
        """Raises `KernelsMissing` if there are no kernels, or none for such heads."""
        check_heads(head_dim)
        self.name = kernels_name(level)
        self.block_bytes = block_bytes(kv_heads, head_dim, block_size, kv)
        """Of one layer's cache."""
        kernels, shape = library(), (heads, kv_heads, head_dim, block_size, KV_KINDS.index(kv))
        self._handle = c_void_p(kernels.corelm_attention_new(self.name.encode(), *shape, threads))
        self._write, self._attend = kernels.corelm_attention_write, kernels.corelm_attention_attend
        weakref.finalize(self, kernels.corelm_attention_delete, self._handle)

    def write(self, cache: int, slots: Ints, k: int, v: int) -> None:
        """Store the keys and values [M, KV heads, head_dim] of tokens at `slots`, block * block_size + offset.

        The tokens of a sequence stand in their order.
        """
        self._write(self._handle, cache, len(slots), address_of(slots), k, v)

    def attend(
        self, cache: int, starts: Ints, lengths: Ints, tables: Ints, window: int | None, q: int, output: int
    ) -> None:
        """Attention of `q` [M, heads, head_dim]: S slices with `lengths` tokens each from position `starts` on.

        `tables` is [S, blocks of the longest context]; a query sees `window` tokens, itself included.
        """
        slices, width = tables.shape
        arrays = address_of(starts), address_of(lengths), address_of(tables)
        self._attend(self._handle, cache, slices, *arrays, width, window_of(window), q, output)


@cache
def library() -> ctypes.CDLL:
    """The shared library. Raises `KernelsMissing`."""
    if not LIBRARY.exists():
        raise KernelsMissing(REASON.read_text().strip() if REASON.exists() else "they were not built")
    try:
        kernels = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise KernelsMissing(f"their library cannot be loaded: {error}") from error
    signatures = {
        "corelm_kernels": (c_char_p, [c_char_p]),
        "corelm_block_bytes": (c_int64, 4 * [c_int]),
        "corelm_attention_new": (c_void_p, [c_char_p, *6 * [c_int]]),
        "corelm_attention_delete": (None, [c_void_p]),
        "corelm_attention_write": (None, [c_void_p, c_void_p, c_int64, *3 * [c_void_p]]),
        "corelm_attention_attend": (None, [*2 * [c_void_p], c_int64, *3 * [c_void_p], *2 * [c_int64], *2 * [c_void_p]]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(kernels, name)
        function.restype, function.argtypes = result, arguments
    return kernels


def address_of(array: Ints) -> int:
    """Where an array of 64-bit integers lies."""
    assert array.dtype == np.int64
    assert array.flags.c_contiguous
    return array.ctypes.data

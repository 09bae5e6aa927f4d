"""The paged KV cache of the native kernels."""

import numpy as np

from corelm_cpu.blocks import BlockStore
from corelm_cpu.kernels import CACHE_PADDING


class NativeKVCache(BlockStore):
    """Keys and values of every layer, in the layout of the kernels, and swap blocks.

    Blocks come uninitialised: the kernels let nothing through that the sequence itself did not write.
    """

    def __init__(self, *, block_bytes: int, layers: int, num_blocks: int, num_swap_blocks: int) -> None:
        """`block_bytes` are those of one layer."""
        self.padding_block = num_blocks  # never read
        whole = layers * num_blocks * block_bytes
        by_layer = np.empty(whole + CACHE_PADDING, np.uint8)[:whole].reshape(layers, num_blocks, block_bytes)
        self.addresses = [int(by_layer.ctypes.data) + layer * by_layer.strides[0] for layer in range(layers)]
        """Of each layer's blocks."""
        super().__init__(by_layer.swapaxes(0, 1), np.empty((num_swap_blocks, layers, block_bytes), np.uint8))

"""The paged KV cache that PyTorch computes with."""

import torch

from corelm_cpu.blocks import BlockStore


class KVCache(BlockStore):
    """Keys and values of every layer, in blocks of `block_size` tokens, and swap blocks to keep some aside.

    Layout [layers, 2, KV heads, blocks + 1, block_size, head_dim]: heads lie outside, so that what is gathered for a
    batch needs no transposing. The last block is padding and always zero.
    """

    def __init__(
        self,
        *,
        layers: int,
        heads: int,
        num_blocks: int,
        num_swap_blocks: int,
        block_size: int,
        head_dim: int,
        dtype: torch.dtype,
    ) -> None:
        self.block_size = block_size
        self.padding_block = num_blocks
        # Uninitialised: the system commits only the blocks that are used, and `clear` comes before any use.
        self._data = torch.empty(layers, 2, heads, num_blocks + 1, block_size, head_dim, dtype=dtype)
        swapped = torch.empty(num_swap_blocks, layers, 2, heads, block_size, head_dim, dtype=dtype)
        super().__init__(self._data.movedim(3, 0), swapped)
        self.clear(torch.tensor([self.padding_block]))
        blocks, slots = (heads, num_blocks + 1, block_size * head_dim), (heads, -1, head_dim)
        self._by_block = [(layer[0].view(blocks), layer[1].view(blocks)) for layer in self._data]
        self._by_slot = [(layer[0].view(slots), layer[1].view(slots)) for layer in self._data]
        self._context = (heads, -1, head_dim)

    def clear(self, blocks: torch.Tensor) -> None:
        """Zero blocks that a sequence was just given.

        A masked position contributes 0 times its value, which must not be a NaN that someone else left there.
        """
        self._data.index_fill_(3, blocks, 0)

    def clear_slots(self, slots: torch.Tensor) -> None:
        """Zero single slots, for a sequence that begins within a block that others filled further."""
        self._data.flatten(3, 4).index_fill_(3, slots, 0)

    def write(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Store `k` and `v`, [M, heads, head_dim], at `slots` [M]."""
        keys, values = self._by_slot[layer]
        keys.index_copy_(1, slots, k.transpose(0, 1))
        values.index_copy_(1, slots, v.transpose(0, 1))

    def gather(self, layer: int, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a list of blocks, each [heads, tokens of all the blocks, head_dim], contiguous."""
        keys, values = self._by_block[layer]
        return keys.index_select(1, blocks).view(self._context), values.index_select(1, blocks).view(self._context)

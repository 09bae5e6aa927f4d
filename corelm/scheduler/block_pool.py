"""KV blocks and who holds them."""

from collections import Counter
from collections.abc import Iterable, Sequence


class BlockPool:
    """A fixed number of KV blocks with reference counts. Raises `ValueError` on a double free."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._references = [0] * num_blocks

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, each with one reference. Raises `ValueError` if there are not enough."""
        if count > len(self._free):
            raise ValueError(f"{count} blocks wanted, {len(self._free)} free")
        blocks = [self._free.pop() for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to blocks that are held already."""
        for block in blocks:
            if not self._references[block]:
                raise ValueError(f"block {block} is free and cannot be shared")
            self._references[block] += 1

    def free(self, blocks: Sequence[int]) -> None:
        """Drop one reference of each block; those without any are free again."""
        for block in reversed(blocks):
            if not self._references[block]:
                raise ValueError(f"block {block} is freed twice")
            self._references[block] -= 1
            if not self._references[block]:
                self._free.append(block)

    def check_integrity(self, held: Iterable[int]) -> None:
        """Raise `AssertionError` unless `held` (one entry per reference) is exactly what is not free."""
        if Counter(held) != Counter({block: count for block, count in enumerate(self._references) if count}):
            raise AssertionError("the blocks that sequences hold are not the blocks that are referenced")
        if len(set(self._free)) != len(self._free) or any(self._references[block] for block in self._free):
            raise AssertionError("the free list holds a block twice or one that is referenced")
        if len(self._free) + sum(1 for count in self._references if count) != self.num_blocks:
            raise AssertionError("blocks were lost")

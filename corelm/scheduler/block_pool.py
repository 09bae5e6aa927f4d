"""KV blocks and who holds them."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from corelm.scheduler.prefix_cache import PrefixCache


class BlockPool:
    """A fixed number of KV blocks with reference counts. Raises `ValueError` on a double free.

    A block without references that is in the prefix cache keeps its content until nothing else is free; then the
    one that was used least recently goes first.
    """

    def __init__(self, num_blocks: int, cache: PrefixCache | None = None) -> None:
        self.num_blocks = num_blocks
        self._cache = cache
        self._free = list(range(num_blocks - 1, -1, -1))
        self._evictable: OrderedDict[int, None] = OrderedDict()
        self._references = [0] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated, those with cached content included."""
        return len(self._free) + len(self._evictable)

    def is_idle(self, block: int) -> bool:
        """Whether a cached block has no references, so that sharing it takes a free block away."""
        return block in self._evictable

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, each with one reference. Raises `ValueError` if there are not enough."""
        if count > self.num_free:
            raise ValueError(f"{count} blocks wanted, {self.num_free} free")
        blocks = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to blocks that are held, or idle in the prefix cache."""
        for block in blocks:
            if not self._references[block]:
                if block not in self._evictable:
                    raise ValueError(f"block {block} is free and cannot be shared")
                del self._evictable[block]
            self._references[block] += 1

    def free(self, blocks: Sequence[int]) -> None:
        """Drop one reference of each block; those without any are free again.

        The end of a sequence becomes evictable before its beginning, which others are more likely to share.
        """
        for block in reversed(blocks):
            if not self._references[block]:
                raise ValueError(f"block {block} is freed twice")
            self._references[block] -= 1
            if self._references[block]:
                continue
            if self._cache is not None and block in self._cache:
                self._evictable[block] = None
            else:
                self._free.append(block)

    def check_integrity(self, held: Iterable[int]) -> None:
        """Raise `AssertionError` unless `held` (one entry per reference) is exactly what is not free."""
        if Counter(held) != Counter({block: count for block, count in enumerate(self._references) if count}):
            raise AssertionError("the blocks that sequences hold are not the blocks that are referenced")
        idle = [*self._free, *self._evictable]
        if len(set(idle)) != len(idle) or any(self._references[block] for block in idle):
            raise AssertionError("a block is free twice, or free and referenced")
        if len(idle) + sum(1 for count in self._references if count) != self.num_blocks:
            raise AssertionError("blocks were lost")
        if self._cache is not None and any(block in self._cache for block in self._free):
            raise AssertionError("a cached block is not evictable")

    def _evict(self) -> int:
        block, _ = self._evictable.popitem(last=False)
        if self._cache is not None:
            self._cache.discard(block)
        return block

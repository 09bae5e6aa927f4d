"""Which sequence holds which blocks, and what has to be copied for it."""

from collections.abc import Iterable

from corelm.scheduler.block_pool import BlockPool
from corelm.scheduler.prefix_cache import PrefixCache
from corelm.scheduler.sequence import Sequence

BlockPairs = tuple[tuple[int, int], ...]


class KVMemory:
    """The KV blocks, the swap blocks and the prefix cache.

    Block operations are collected for the next plan. An executor does copies first, then swaps out, then in: forks
    come between two plans, preemptions before admissions, so each block still holds what is to be read from it.
    """

    def __init__(self, *, num_blocks: int, block_size: int, num_swap_blocks: int = 0, prefix_cache: bool) -> None:
        self.block_size = block_size
        self._cache = PrefixCache(block_size) if prefix_cache else None
        self.pool = BlockPool(num_blocks, self._cache)
        self.swap_pool = BlockPool(num_swap_blocks)
        self._copies: list[tuple[int, int]] = []
        self._swap_out: list[tuple[int, int]] = []
        self._swap_in: list[tuple[int, int]] = []

    def admit(self, sequence: Sequence, reserve: int) -> bool:
        """Give a sequence blocks for all its tokens, if at least `reserve` stay free.

        All of them at once: a chunked prompt never loses a race for its own blocks. What the prefix cache or the swap
        pool has need not be computed.
        """
        shared = self._shared(sequence)
        count = -(-len(sequence.token_ids) // self.block_size) - len(shared)
        taken = count + sum(map(self.pool.is_idle, shared))
        if taken + reserve > self.pool.num_free:
            return False
        self.pool.share(shared)
        sequence.block_ids = shared + self.pool.allocate(count)
        computed = len(shared) * self.block_size
        if sequence.swapped_tokens > computed:
            self._swap_in += list(zip(sequence.swap_ids, sequence.block_ids, strict=False))[len(shared) :]
            computed = sequence.swapped_tokens
        self.forget_swapped(sequence)
        sequence.num_computed = computed
        return True

    def grow(self, sequence: Sequence) -> None:
        """Give a sequence one more block. The caller made sure that one is free."""
        sequence.block_ids += self.pool.allocate(1)

    def fork(self, parent: Sequence, child: Sequence, reserve: int) -> bool:
        """Let a child share its parent's blocks up to its last token, if at least `reserve` stay free.

        The block that the child will write to is copied. False too if the parent has not computed that much.
        """
        computed = len(child.token_ids) - 1
        full, partial = divmod(computed, self.block_size)
        if parent.num_computed < computed or bool(partial) + reserve > self.pool.num_free:
            return False
        shared = parent.block_ids[:full]
        self.pool.share(shared)
        child.block_ids = list(shared)
        if partial:
            self.grow(child)
            self._copies.append((parent.block_ids[full], child.block_ids[full]))
        child.block_hashes = parent.block_hashes[:full]
        child.num_computed = computed
        return True

    def release(self, sequence: Sequence, *, keep: int = 0) -> bool:
        """Take a sequence's blocks back.

        Keeps its first `keep` positions in swap blocks, if there are enough; returns whether it did.
        """
        count = -(-keep // self.block_size)
        swapped = 0 < count <= self.swap_pool.num_free
        if swapped:
            sequence.swap_ids = self.swap_pool.allocate(count)
            sequence.swapped_tokens = keep
            self._swap_out += zip(sequence.block_ids, sequence.swap_ids, strict=False)
        self.pool.free(sequence.block_ids)
        sequence.block_ids = []
        sequence.num_computed = 0
        return swapped

    def forget_swapped(self, sequence: Sequence) -> None:
        """Free a sequence's swap blocks."""
        self.swap_pool.free(sequence.swap_ids)
        sequence.swap_ids = []
        sequence.swapped_tokens = 0

    def cached_tokens(self, sequence: Sequence) -> int:
        """Tokens at the beginning of a sequence that the prefix cache has now."""
        return len(self._shared(sequence)) * self.block_size

    def remember(self, sequence: Sequence, start: int, end: int) -> None:
        """Enter the blocks that became full by computing positions `start` to `end` - 1 into the prefix cache."""
        first, last = start // self.block_size, end // self.block_size
        if first == last or self._cache is None or not sequence.options.prefix_cache:
            return
        self._cache.extend(sequence.block_hashes, sequence.token_ids, last * self.block_size, _salt(sequence))
        blocks, hashes = sequence.block_ids[first:last], sequence.block_hashes[first:last]
        for block, digest in zip(blocks, hashes, strict=True):
            self._cache.insert(block, digest)

    def distrust(self, sequence: Sequence) -> None:
        """Take a sequence's blocks out of the prefix cache: what they hold may be what made it fail."""
        if self._cache is not None:
            self._cache.discard_hashes(sequence.block_hashes)

    def take_operations(self) -> dict[str, BlockPairs]:
        """The plan's fields for the block operations since the last call."""
        if not (self._copies or self._swap_out or self._swap_in):
            return {}
        operations = {
            "copies": tuple(self._copies),
            "swap_out": tuple(self._swap_out),
            "swap_in": tuple(self._swap_in),
        }
        self._copies, self._swap_out, self._swap_in = [], [], []
        return operations

    def check_integrity(self, running: Iterable[Sequence], waiting: Iterable[Sequence]) -> None:
        """Raise `AssertionError` unless these sequences hold exactly what is not free."""
        running, waiting = list(running), list(waiting)
        self.pool.check_integrity(block for sequence in running for block in sequence.block_ids)
        self.swap_pool.check_integrity(block for sequence in waiting for block in sequence.swap_ids)
        for sequence in running:
            if len(sequence.block_ids) * self.block_size < sequence.num_computed:
                raise AssertionError(f"sequence {sequence.seq_id} has computed more than its blocks hold")
            if sequence.swap_ids:
                raise AssertionError(f"running sequence {sequence.seq_id} holds swap blocks")
        for sequence in waiting:
            if sequence.block_ids or sequence.num_computed:
                raise AssertionError(f"waiting sequence {sequence.seq_id} holds blocks")

    def _shared(self, sequence: Sequence) -> list[int]:
        """Blocks that the prefix cache has for a sequence. Its last token is always computed, for its logits."""
        if self._cache is None or not sequence.options.prefix_cache or sequence.sampling.prompt_logprobs is not None:
            return []
        usable = len(sequence.token_ids) - 1
        self._cache.extend(sequence.block_hashes, sequence.token_ids, usable, _salt(sequence))
        return list(self._cache.match(sequence.block_hashes[: usable // self.block_size]))


def _salt(sequence: Sequence) -> str:
    return sequence.options.cache_salt or ""

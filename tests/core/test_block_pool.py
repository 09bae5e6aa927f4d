import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelm.scheduler.block_pool import BlockPool
from corelm.scheduler.prefix_cache import PrefixCache


def test_allocates_all_and_no_more():
    pool = BlockPool(3)
    assert sorted(pool.allocate(3)) == [0, 1, 2]
    with pytest.raises(ValueError, match="1 blocks wanted, 0 free"):
        pool.allocate(1)


def test_double_free_is_refused():
    pool = BlockPool(2)
    blocks = pool.allocate(1)
    pool.free(blocks)
    with pytest.raises(ValueError, match="freed twice"):
        pool.free(blocks)


def test_shared_block_is_free_after_its_last_reference():
    pool = BlockPool(1)
    blocks = pool.allocate(1)
    pool.share(blocks)
    pool.free(blocks)
    assert pool.num_free == 0
    pool.check_integrity(blocks)
    pool.free(blocks)
    assert pool.num_free == 1
    with pytest.raises(ValueError, match="is free"):
        pool.share(blocks)


def test_integrity_notices_a_lost_block():
    pool = BlockPool(2)
    pool.allocate(1)
    with pytest.raises(AssertionError):
        pool.check_integrity([])


@given(st.lists(st.integers(0, 5), max_size=60))
def test_random_use_keeps_every_block(sizes):
    pool = BlockPool(10)
    held: list[list[int]] = []
    for size in sizes:
        if size <= pool.num_free and size:
            held.append(pool.allocate(size))
        elif held:
            pool.free(held.pop(0))
        pool.check_integrity(block for blocks in held for block in blocks)


def test_cached_blocks_are_evicted_last_and_the_least_recently_used_first():
    cache = PrefixCache(2)
    pool = BlockPool(3, cache)
    first, second, third = pool.allocate(3)
    cache.insert(first, b"1")
    cache.insert(second, b"2")
    pool.free([second])
    pool.free([first])
    pool.free([third])
    assert pool.num_free == 3
    assert pool.allocate(1) == [third]
    assert list(cache.match([b"1", b"2"])) == [first, second]
    assert pool.allocate(1) == [second]
    assert list(cache.match([b"1", b"2"])) == [first]
    pool.share([first])
    assert pool.num_free == 0
    pool.check_integrity([first, second, third])

"""Copies of KV blocks: within the cache, and to and from host memory."""

from collections.abc import Iterable, Iterator

import torch
import triton
import triton.language as tl

from corelm_gpu.kernels.launch import Launch

WORDS = 1024
"""Of a block's part in one layer, for one program."""


@triton.jit
def _copy_blocks(source, target, pairs, words, source_stride, target_stride, WORDS: tl.constexpr):
    pair, part = tl.program_id(0), tl.program_id(1).to(tl.int64)
    offsets = tl.program_id(2) * WORDS + tl.arange(0, WORDS)
    inside = offsets < words
    origin = tl.load(pairs + 2 * pair).to(tl.int64)
    destination = tl.load(pairs + 2 * pair + 1).to(tl.int64)
    value = tl.load(source + part * source_stride + origin * words + offsets, mask=inside)
    tl.store(target + part * target_stride + destination * words + offsets, value, mask=inside)


def copy_blocks(source: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor) -> Launch:
    """Copy block ``pairs[p, 0]`` of every part of `source` to block ``pairs[p, 1]`` of `target`.

    `pairs` is int32 [P, 2]. `source` and `target` are int32 [parts, blocks, words]. Pairs take effect at once, in no
    order: no block may be written that another pair reads or writes. One of the two may be pinned host memory.
    """
    parts, _, words = source.shape
    return Launch(
        kernel=_copy_blocks,
        grid=(len(pairs), parts, triton.cdiv(words, WORDS)),
        arguments={
            "source": source,
            "target": target,
            "pairs": pairs,
            "words": words,
            "source_stride": source.stride(0),
            "target_stride": target.stride(0),
        },
        constants={"WORDS": WORDS},
    )


def independent(pairs: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Split pairs within one cache, which are meant in their order, into lists that may be done at once each."""
    batch: list[tuple[int, int]] = []
    read: set[int] = set()
    written: set[int] = set()
    for origin, destination in pairs:
        if origin in written or destination in written or destination in read:
            yield batch
            batch, read, written = [], set(), set()
        batch.append((origin, destination))
        read.add(origin)
        written.add(destination)
    if batch:
        yield batch


def copy_blocks_reference(source: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor) -> None:
    """The same with indexing."""
    origins, destinations = pairs.long().unbind(1)
    target[:, destinations] = source[:, origins]

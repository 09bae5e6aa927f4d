// The part of a tile whose scores are kept at a time, and fetching it before it is read.
#pragma once
#include "attention/kernels.h"

namespace {

constexpr int AHEAD = 3;  // blocks fetched ahead: they lie scattered, which the processor cannot foresee

// A chunk of blocks for some rows of a tile, no further than these rows see.
struct Chunk {
    int first, last;  // blocks
    int64_t end;      // position behind the last row's
    int64_t count;    // scores of a row, even

    Chunk(const Shape& shape, const Tile& tile, int last_row, int first, int last)
        : first(first), last(last), end(tile.position + last_row / shape.group() + 1) {
        const int64_t visible = (end + shape.block_size - 1) / shape.block_size;
        if (this->last > visible) this->last = int(visible);
        const int64_t tail = tokens(shape, this->last - 1);
        count = index(shape, this->last - 1) + tail + tail % 2;
    }

    // Tokens of a block that a row may see.
    int tokens(const Shape& shape, int b) const {
        const int64_t left = end - int64_t(b) * shape.block_size;
        return left < shape.block_size ? int(left) : shape.block_size;
    }

    // Where a block's scores begin among those of a row.
    int64_t index(const Shape& shape, int b) const { return int64_t(b - first) * shape.slots(); }
};

// Fetch what is read AHEAD steps after step `n` of a chunk: each block's keys, each block's values, and so on in the
// tile's next chunk.
inline void fetch_ahead(const Shape& shape, const Tile& tile, const Chunk& chunk, int n) {
    const int blocks = chunk.last - chunk.first;
    n += AHEAD;
    const int b = chunk.first + (n < blocks ? n : n - blocks);
    if (b >= tile.last) return;
    const bool values = n >= blocks && b < chunk.last;
    const uint8_t* from = tile.block(b) + (values ? shape.values() : 0);
    for (size_t i = 0; i < shape.values(); i += 64) __builtin_prefetch(from + i);
}

}  // namespace

// Scores of a tile's rows against a chunk of blocks: q . k * scale, -infinity where a row does not see a token.
#pragma once
#include "attention/layout.h"

namespace {

struct Row {
    const uint16_t* query;
    int64_t from, to;  // positions that it sees
    float* scores;     // of the chunk, `slots` a block
};

// The scores of LANES tokens from `position` on, of which `valid` are tokens at all, as far as the row sees them.
inline Floats mask(Floats scores, const Row& row, int64_t position, int valid) {
    const int64_t from = row.from - position, to = row.to - position;
    const bool all = from <= 0 && to >= LANES && valid >= LANES;
    return all ? scores : only_lanes(scores, from, to < valid ? to : valid);
}

// `R` rows against LANES tokens from `position` on, whose keys begin at `keys`; `valid` of them are in the block.
template <int R>
inline void score_lanes(const Shape& shape, const uint16_t* keys, int64_t position, int valid, float scale, Row* rows,
                        size_t index) {
    const size_t step = 2 * size_t(shape.slots());
    Floats even[R], odd[R];  // two chains of additions, to hide their latency
    for (int r = 0; r < R; r++) even[r] = odd[r] = splat(0);
    for (int i = 0; i < shape.head_dim; i += 4, keys += 2 * step) {
        const Pairs k0 = load_pairs(keys), k1 = load_pairs(keys + step);
        for (int r = 0; r < R; r++) {
            even[r] = dot(even[r], k0, splat_pair(rows[r].query + i));
            odd[r] = dot(odd[r], k1, splat_pair(rows[r].query + i + 2));
        }
    }
    for (int r = 0; r < R; r++) {
        const Floats score = mask(mul(add(even[r], odd[r]), splat(scale)), rows[r], position, valid);
        store(rows[r].scores + index, score);
        store(rows[r].scores + index + LANES, splat(-INFINITY));  // the softmax reads whole vectors
    }
}

inline void prefetch(const uint16_t* from, size_t elements) {
    for (size_t i = 0; i < elements; i += 32) __builtin_prefetch(from + i);
}

// `R` rows against tokens of blocks `first` to `last` - 1, none at or beyond position `end`.
template <int R>
void score_blocks(const Shape& shape, const Tile& tile, int first, int last, int64_t end, float scale, Row* rows) {
    for (int b = first; b < last; b++) {
        const uint16_t* keys = tile.region + tile.table[b] * shape.block();
        if (b + AHEAD < last) prefetch(tile.region + tile.table[b + AHEAD] * shape.block(), shape.values());
        const int64_t begin = int64_t(b) * shape.block_size;
        for (int offset = 0; offset < shape.block_size && begin + offset < end; offset += LANES)
            score_lanes<R>(shape, keys + 2 * offset, begin + offset, shape.block_size - offset, scale, rows,
                           size_t(b - first) * shape.slots() + offset);
    }
}

}  // namespace

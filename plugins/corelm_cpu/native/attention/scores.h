// Scores of a tile's rows against a chunk of blocks: q . k * scale, -infinity where a row does not see a token.
#pragma once
#include "attention/chunk.h"

namespace {

struct Row {
    const uint8_t* query;  // words
    float scale;           // of the sums of products
    int start;             // of these sums, if they are of codes
    int64_t from, to;      // positions that it sees
    float* scores;         // of the chunk, `slots` a block
};

// The scores of LANES tokens from `position` on, of which `valid` are tokens at all, as far as the row sees them.
inline Floats mask(Floats scores, const Row& row, int64_t position, int valid) {
    const int64_t from = row.from - position, to = row.to - position;
    const bool all = from <= 0 && to >= LANES && valid >= LANES;
    return all ? scores : only_lanes(scores, from, to < valid ? to : valid);
}

// `R` rows against the LANES tokens from `offset` in a block with these keys on; there the positions begin.
template <class Elements, int R>
inline void score_lanes(const Shape& shape, const uint8_t* keys, int offset, int64_t position, const Row* rows,
                        size_t index) {
    const size_t step = size_t(WORD) * shape.slots();
    const uint8_t* words = keys + WORD * offset;
    typename Elements::Score even[R], odd[R];  // two chains of additions, to hide their latency
    for (int r = 0; r < R; r++) {
        even[r] = Elements::start(rows[r].start);
        odd[r] = Elements::start(0);
    }
    for (int i = 0; i < shape.head_dim * Elements::BYTES; i += 2 * WORD, words += 2 * step) {
        const auto k0 = Elements::load_keys(words), k1 = Elements::load_keys(words + step);
        for (int r = 0; r < R; r++) {
            even[r] = Elements::score(even[r], k0, rows[r].query + i);
            odd[r] = Elements::score(odd[r], k1, rows[r].query + i + WORD);
        }
    }
    for (int r = 0; r < R; r++) {
        const Floats products = Elements::scaled(shape, keys, offset, add(even[r], odd[r]));
        const Floats score = mul(products, splat(rows[r].scale));
        store(rows[r].scores + index, mask(score, rows[r], position + offset, shape.block_size - offset));
        store(rows[r].scores + index + LANES, splat(-INFINITY));  // the softmax reads whole vectors
    }
}

template <class Elements, int R>
void score_chunk(const Shape& shape, const Tile& tile, const Chunk& chunk, const Row* rows) {
    for (int b = chunk.first; b < chunk.last; b++) {
        fetch_ahead(shape, tile, chunk, b - chunk.first);
        const int64_t begin = int64_t(b) * shape.block_size;
        for (int offset = 0; offset < chunk.tokens(shape, b); offset += LANES)
            score_lanes<Elements, R>(shape, tile.block(b), offset, begin, rows, chunk.index(shape, b) + offset);
    }
}

}  // namespace

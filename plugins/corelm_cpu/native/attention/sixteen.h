// Attention of up to 16 rows of a tile to a chunk, by Advanced Matrix Extensions.
#pragma once
#include "attention/amx.h"
#include "attention/expand.h"
#include "attention/rows.h"

namespace {

// `count` rows from `row` on.
void attend_sixteen(const Shape& shape, const Tile& tile, int row, int count, int first, int last, float scale,
                    const Scratch& scratch, const State& state) {
    const Chunk chunk(shape, tile, row + count - 1, first, last);
    if (chunk.first >= chunk.last) return;
    const int d = shape.head_dim;
    alignas(64) uint16_t queries[TILE * 256];
    for (int r = 0; r < count; r++)
        __builtin_memcpy(queries + r * d, tile.query(shape, row + r), size_t(d) * sizeof(uint16_t));
    const AmxSession session(count);
    amx_scores(shape, tile, chunk, queries, scratch.row_scores(row), scratch.scores_stride);
    for (int r = 0; r < count; r++) {
        const Row own = make_row<Bfloat16>(shape, tile, scale, scratch, row + r);
        for (int64_t i = 0; i < chunk.count; i += LANES) {
            const int64_t position = int64_t(chunk.first) * shape.block_size + i;
            store(own.scores + i, mask(mul(load(own.scores + i), splat(scale)), own, position, LANES));
        }
        soften_row<Bfloat16>(shape, chunk, row + r, 1, scratch, state);
    }
    // Only whole blocks: behind the end lies what others left.
    const int64_t written = chunk.end / shape.block_size;
    const int whole = written < chunk.last ? int(written) : chunk.last;
    float* acc = state.acc + row * scratch.acc_stride;
    if (chunk.first < whole)
        amx_weigh(shape, tile, chunk, whole, scratch.row_weights(row), scratch.weights_stride, acc,
                  scratch.acc_stride);
    if (whole == chunk.last) return;
    const Chunk rest(shape, tile, row + count - 1, whole, last);
    Scratch behind = scratch;
    behind.weights += chunk.index(shape, whole) * Bfloat16::BYTES;
    for (int r = 0; r < count; r += TOGETHER)
        weigh_chunk<Bfloat16, TOGETHER>(shape, tile, rest, row + r, 1, behind, acc + r * scratch.acc_stride);
}

void attend_sixteens(const Shape& shape, const Tile& tile, int rows, int first, int last, float scale,
                     const Scratch& scratch, const State& state) {
    for (int row = 0; row < rows; row += TILE)
        attend_sixteen(shape, tile, row, rows - row < TILE ? rows - row : TILE, first, last, scale, scratch, state);
}

// The same of a coded cache.
void attend_expanded(const Shape& shape, const Tile& tile, int rows, int first, int last, float scale,
                     const Scratch& scratch, const State& state) {
    static constexpr int64_t IN_ORDER[CHUNK_TOKENS / TILE] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    Shape wide = shape;
    wide.kind = CacheKind::BF16;
    expand(shape, tile, first, last, wide, scratch.expanded);
    Tile copy = tile;
    copy.region = scratch.expanded;
    copy.block_bytes = wide.region();
    copy.table = IN_ORDER;
    copy.position -= int64_t(first) * shape.block_size;
    copy.first = 0;
    copy.last = last - first;
    attend_sixteens(wide, copy, rows, copy.first, copy.last, scale, scratch, state);
}

}  // namespace

// Attention of some rows of a tile to a chunk, by products of vectors.
#pragma once
#include "attention/int8.h"
#include "attention/plain.h"
#include "attention/softmax.h"

namespace {

constexpr int TOGETHER = 4;  // rows that share what is loaded from the cache

template <class Elements>
inline Row make_row(const Shape& shape, const Tile& tile, float scale, const Scratch& scratch, int row) {
    Row result = Elements::query(tile.query(shape, row), scale, scratch, row);
    result.to = tile.position + row / shape.group() + 1;
    result.from = result.to - tile.window;
    result.scores = scratch.row_scores(row);
    return result;
}

template <class Elements>
inline void soften_row(const Shape& shape, const Chunk& chunk, int row, float unit, const Scratch& scratch,
                       const State& state) {
    const float* scores = scratch.row_scores(row);
    float *max = state.max + row, *sum = state.sum + row;
    raise_maximum(scores, chunk.count, max, sum, state.acc + row * scratch.acc_stride, shape.head_dim);
    *sum += Elements::soften(chunk, scores, *max, unit, scratch, scratch.row_weights(row));
}

template <class Elements, int R>
void attend_rows(const Shape& shape, const Tile& tile, int row, int first, int last, float scale,
                 const Scratch& scratch, const State& state) {
    const Chunk chunk(shape, tile, row + R - 1, first, last);
    if (chunk.first >= chunk.last) return;
    Row rows[R];
    for (int r = 0; r < R; r++) rows[r] = make_row<Elements>(shape, tile, scale, scratch, row + r);
    score_chunk<Elements, R>(shape, tile, chunk, rows);
    const float unit = Elements::prepare(shape, tile, chunk, scratch);
    for (int r = 0; r < R; r++) soften_row<Elements>(shape, chunk, row + r, unit, scratch, state);
    weigh_chunk<Elements, R>(shape, tile, chunk, row, unit, scratch, state.acc + row * scratch.acc_stride);
}

}  // namespace

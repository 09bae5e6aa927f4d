// Attention of one tile, and how results of parts of a context become one.
#pragma once
#include "attention/scores.h"
#include "attention/softmax.h"
#include "attention/weigh.h"
#ifdef __AMX_BF16__
#include "attention/amx.h"
#endif

namespace {

constexpr float LOWEST = -1e30f;  // below every score, yet differences of it are numbers
constexpr int TOGETHER = 4;       // rows that share what is loaded from the cache

// Row r of a tile is head r % group of query r / group.
inline size_t row_offset(const Shape& shape, int row) {
    return (size_t(row / shape.group()) * shape.heads + row % shape.group()) * shape.head_dim;
}

// A chunk of blocks for some rows of a tile, no further than these rows see.
struct Chunk {
    int first, last;  // blocks
    int64_t end;      // position behind the last row's
    int64_t count;    // scores of a row, even

    Chunk(const Shape& shape, const Tile& tile, int last_row, int first, int last)
        : first(first), last(last), end(tile.position + last_row / shape.group() + 1) {
        const int64_t visible = (end + shape.block_size - 1) / shape.block_size;
        if (this->last > visible) this->last = int(visible);
        const int64_t left = end - int64_t(this->last - 1) * shape.block_size;
        const int64_t tail = left < shape.block_size ? left : shape.block_size;
        count = int64_t(this->last - 1 - first) * shape.slots() + tail + tail % 2;
    }
};

inline Row make_row(const Shape& shape, const Tile& tile, const Scratch& scratch, int row) {
    const int64_t end = tile.position + row / shape.group() + 1;
    float* scores = scratch.scores + row * scratch.scores_stride;
    return {tile.queries + row_offset(shape, row), end - tile.window, end, scores};
}

inline void soften_row(const Shape& shape, int row, int64_t count, const Scratch& scratch, const State& state) {
    soften(scratch.scores + row * scratch.scores_stride, scratch.weights + row * scratch.scores_stride, count,
           state.max + row, state.sum + row, state.acc + row * scratch.acc_stride, shape.head_dim);
}

template <int R>
void attend_rows(const Shape& shape, const Tile& tile, int row, int first, int last, float scale,
                 const Scratch& scratch, const State& state) {
    const Chunk chunk(shape, tile, row + R - 1, first, last);
    if (chunk.first >= chunk.last) return;
    Row rows[R];
    for (int r = 0; r < R; r++) rows[r] = make_row(shape, tile, scratch, row + r);
    score_blocks<R>(shape, tile, chunk.first, chunk.last, chunk.end, scale, rows);
    for (int r = 0; r < R; r++) soften_row(shape, row + r, chunk.count, scratch, state);
    weigh<R>(shape, tile, chunk.first, chunk.last, chunk.end, scratch.weights + row * scratch.scores_stride,
             scratch.scores_stride, state.acc + row * scratch.acc_stride, scratch.acc_stride);
}

#ifdef __AMX_BF16__
// 16 rows, of which `count` are real.
void attend_sixteen(const Shape& shape, const Tile& tile, int row, int count, int first, int last, float scale,
                    const Scratch& scratch, const State& state) {
    const Chunk chunk(shape, tile, row + count - 1, first, last);
    if (chunk.first >= chunk.last) return;
    const int d = shape.head_dim;
    alignas(64) uint16_t queries[TILE * 256];
    for (int r = 0; r < TILE; r++) {
        const int real = r < count ? r : count - 1;
        __builtin_memcpy(queries + r * d, tile.queries + row_offset(shape, row + real), size_t(d) * sizeof(uint16_t));
    }
    const size_t offset = row * scratch.scores_stride;
    amx_scores(shape, tile, chunk.first, chunk.last, queries, scratch.scores + offset, scratch.scores_stride);
    for (int r = 0; r < count; r++) {
        const Row own = make_row(shape, tile, scratch, row + r);
        for (int64_t i = 0; i < chunk.count; i += LANES) {
            const int64_t position = int64_t(chunk.first) * shape.block_size + i;
            store(own.scores + i, mask(mul(load(own.scores + i), splat(scale)), own, position, LANES));
        }
        soften_row(shape, row + r, chunk.count, scratch, state);
    }
    // Only whole blocks: behind the end lies what others left.
    const int64_t written = chunk.end / shape.block_size;
    const int whole = written < chunk.last ? int(written) : chunk.last;
    float* acc = state.acc + row * scratch.acc_stride;
    const uint16_t* weights = scratch.weights + offset;
    if (chunk.first < whole)
        amx_weigh(shape, tile, chunk.first, whole, weights, scratch.scores_stride, acc, scratch.acc_stride);
    if (whole == chunk.last) return;
    weights += size_t(whole - chunk.first) * shape.block_size;
    for (int r = 0; r < TILE; r += TOGETHER)
        weigh<TOGETHER>(shape, tile, whole, chunk.last, chunk.end, weights + r * scratch.scores_stride,
                        scratch.scores_stride, acc + r * scratch.acc_stride, scratch.acc_stride);
}
#endif

void attend_chunk(const Shape& shape, const Tile& tile, int rows, int first, int last, float scale,
                  const Scratch& scratch, const State& state) {
    int row = 0;
#ifdef __AMX_BF16__
    if (rows >= TILE && amx_suits(shape)) {
        const AmxSession session;
        for (; row < rows; row += TILE)
            attend_sixteen(shape, tile, row, rows - row < TILE ? rows - row : TILE, first, last, scale, scratch, state);
        return;
    }
#endif
    for (; row + TOGETHER <= rows; row += TOGETHER)
        attend_rows<TOGETHER>(shape, tile, row, first, last, scale, scratch, state);
    switch (rows - row) {
        case 3: return attend_rows<3>(shape, tile, row, first, last, scale, scratch, state);
        case 2: return attend_rows<2>(shape, tile, row, first, last, scale, scratch, state);
        case 1: return attend_rows<1>(shape, tile, row, first, last, scale, scratch, state);
        default: return;
    }
}

void attend(const Shape& shape, const Tile& tile, float scale, const Scratch& scratch, const State& state) {
    const int rows = tile.count * shape.group();
    for (int r = 0; r < rows; r++) {
        state.max[r] = LOWEST;
        state.sum[r] = 0;
        for (size_t d = 0; d < scratch.acc_stride; d++) state.acc[r * scratch.acc_stride + d] = 0;
    }
    const int blocks = shape.slots() < CHUNK_TOKENS ? CHUNK_TOKENS / shape.slots() : 1;
    for (int first = tile.first; first < tile.last; first += blocks) {
        const int last = first + blocks < tile.last ? first + blocks : tile.last;
        attend_chunk(shape, tile, rows, first, last, scale, scratch, state);
    }
}

void merge(int rows, int width, size_t stride, const State& state, const State& other) {
    for (int r = 0; r < rows; r++) {
        const float most = state.max[r] > other.max[r] ? state.max[r] : other.max[r];
        const Floats mine = exp2_of(splat(state.max[r] - most)), its = exp2_of(splat(other.max[r] - most));
        float *acc = state.acc + r * stride, *added = other.acc + r * stride;
        for (int d = 0; d < width; d += LANES)
            store(acc + d, add(mul(load(acc + d), mine), mul(load(added + d), its)));
        state.sum[r] = (state.sum[r] * total(mine) + other.sum[r] * total(its)) / LANES;
        state.max[r] = most;
    }
}

void finish(const Shape& shape, const Tile& tile, size_t stride, const State& state) {
    for (int r = 0; r < tile.count * shape.group(); r++) {
        const Floats share = splat(1 / state.sum[r]);
        const float* acc = state.acc + r * stride;
        uint16_t* output = tile.output + row_offset(shape, r);
        int d = 0;
        for (; d + LANES <= shape.head_dim; d += LANES) store_bfloat16(output + d, mul(load(acc + d), share));
        if (d < shape.head_dim) store_half(output + d, mul(load(acc + d), share));
    }
}

}  // namespace

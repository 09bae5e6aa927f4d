// Attention of one tile.
#pragma once
#include "attention/rows.h"
#ifdef __AMX_BF16__
#include "attention/sixteen.h"
#endif

namespace {

constexpr float LOWEST = -1e30f;  // below every score, yet differences of it are numbers

template <class Elements>
void attend_chunk(const Shape& shape, const Tile& tile, int rows, int first, int last, float scale,
                  const Scratch& scratch, const State& state) {
    int row = 0;
    for (; row + TOGETHER <= rows; row += TOGETHER)
        attend_rows<Elements, TOGETHER>(shape, tile, row, first, last, scale, scratch, state);
    switch (rows - row) {
        case 3: return attend_rows<Elements, 3>(shape, tile, row, first, last, scale, scratch, state);
        case 2: return attend_rows<Elements, 2>(shape, tile, row, first, last, scale, scratch, state);
        case 1: return attend_rows<Elements, 1>(shape, tile, row, first, last, scale, scratch, state);
        default: return;
    }
}

using AttendChunk = void (*)(const Shape&, const Tile&, int rows, int first, int last, float scale, const Scratch&,
                             const State&);

inline AttendChunk choose_attend_chunk(const Shape& shape, [[maybe_unused]] int rows) {
#ifdef __AMX_BF16__
    if (amx_suits(shape) && shape.kind == CacheKind::BF16) return attend_sixteens;
    // So many that making them bfloat16 is worth it.
    if (amx_suits(shape) && shape.kind == CacheKind::INT8 && rows >= TILE) return attend_expanded;
#endif
    switch (shape.kind) {
        case CacheKind::INT8: return attend_chunk<Int8>;
        case CacheKind::F32: return attend_chunk<Float32>;
        default: return attend_chunk<Bfloat16>;
    }
}

void attend(const Shape& shape, const Tile& tile, float scale, const Scratch& scratch, const State& state) {
    const int rows = tile.count * shape.group();
    for (int r = 0; r < rows; r++) {
        state.max[r] = LOWEST;
        state.sum[r] = 0;
        for (size_t d = 0; d < scratch.acc_stride; d++) state.acc[r * scratch.acc_stride + d] = 0;
        if (shape.coded()) code_query(shape, tile.query(shape, r), scratch, r);
    }
    const AttendChunk attend_some = choose_attend_chunk(shape, rows);
    const int blocks = chunk_blocks(shape);
    for (int first = tile.first; first < tile.last; first += blocks) {
        const int last = first + blocks < tile.last ? first + blocks : tile.last;
        attend_some(shape, tile, rows, first, last, scale, scratch, state);
    }
}

}  // namespace

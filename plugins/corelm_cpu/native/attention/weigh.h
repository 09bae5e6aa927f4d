// Adding a chunk's values, weighted, to the rows' accumulators.
#pragma once
#include "attention/chunk.h"

namespace {

// `R` rows and `D` vectors of dimensions, from `dimension` on, stay in registers for the whole chunk.
template <class Elements, int R, int D>
void weigh_dimensions(const Shape& shape, const Tile& tile, const Chunk& chunk, int row, int dimension, float unit,
                      const Scratch& scratch, float* acc) {
    const size_t step = size_t(WORD) * shape.head_dim, stride = scratch.weights_stride;
    typename Elements::Sum sum[R][D];
    for (int r = 0; r < R; r++)
        for (int d = 0; d < D; d++) sum[r][d] = Elements::resume(acc + r * scratch.acc_stride + d * LANES);
    for (int b = chunk.first; b < chunk.last; b++) {
        if (dimension == 0) fetch_ahead(shape, tile, chunk, chunk.last + b - 2 * chunk.first);
        const uint8_t* values = tile.block(b) + shape.values() + WORD * dimension;
        const uint8_t* weights = scratch.row_weights(row) + chunk.index(shape, b) * Elements::BYTES;
        const int bytes = chunk.tokens(shape, b) * Elements::BYTES;
        for (int j = 0; j < bytes; j += WORD, values += step) {
            decltype(Elements::load_values(values)) value[D];
            for (int d = 0; d < D; d++) value[d] = Elements::load_values(values + WORD * d * LANES);
            for (int r = 0; r < R; r++) {
                const auto weight = Elements::splat_weights(weights + r * stride + j, scratch);
                for (int d = 0; d < D; d++) sum[r][d] = Elements::weigh(sum[r][d], value[d], weight);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int d = 0; d < D; d++) Elements::keep(acc + r * scratch.acc_stride + d * LANES, sum[r][d], unit);
}

using Weigh = void (*)(const Shape&, const Tile&, const Chunk&, int, int, float, const Scratch&, float*);

template <class Elements, int R>
constexpr Weigh WEIGH[] = {weigh_dimensions<Elements, R, 1>, weigh_dimensions<Elements, R, 2>,
                           weigh_dimensions<Elements, R, 3>, weigh_dimensions<Elements, R, 4>};

// All dimensions of `R` rows from `row` on, whose accumulators begin at `acc`. A weight of 1 is a `unit`.
template <class Elements, int R>
void weigh_chunk(const Shape& shape, const Tile& tile, const Chunk& chunk, int row, float unit, const Scratch& scratch,
                 float* acc) {
    constexpr int vectors = (LANES == 16 ? 24 : 8) * sizeof(Floats) / sizeof(typename Elements::Sum);  // of sums
    constexpr int most = vectors / R < 1 ? 1 : vectors / R > 4 ? 4 : vectors / R;
    const int all = (shape.head_dim + LANES - 1) / LANES, passes = (all + most - 1) / most;
    const int each = (all + passes - 1) / passes;
    for (int d = 0; d < all; d += each) {
        const Weigh weigh_some = WEIGH<Elements, R>[(all - d < each ? all - d : each) - 1];
        weigh_some(shape, tile, chunk, row, d * LANES, unit, scratch, acc + d * LANES);
    }
}

}  // namespace

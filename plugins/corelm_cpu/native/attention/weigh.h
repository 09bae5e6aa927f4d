// Adding a chunk's values, weighted, to the rows' accumulators.
#pragma once
#include "attention/kernels.h"

namespace {

// `R` rows and `D` vectors of dimensions stay in registers for the whole chunk.
template <int R, int D>
void weigh_blocks(const Shape& shape, const Tile& tile, int first, int last, int64_t end, int dimension,
                  const uint16_t* weights, size_t stride, float* acc, size_t acc_stride) {
    Floats sum[R][D];
    for (int r = 0; r < R; r++)
        for (int d = 0; d < D; d++) sum[r][d] = load(acc + r * acc_stride + d * LANES);
    for (int b = first; b < last; b++) {
        const uint16_t* values = tile.region + tile.table[b] * shape.block() + shape.values() + 2 * dimension;
        if (b + AHEAD < last) {
            const uint16_t* next = tile.region + tile.table[b + AHEAD] * shape.block();
            const uint16_t* ahead = next + shape.values() + 2 * dimension;
            for (int j = 0; j < shape.slots() / 2; j++)
                for (int d = 0; d < D; d++) __builtin_prefetch(ahead + 2 * (size_t(j) * shape.head_dim + d * LANES));
        }
        const int64_t left = end - int64_t(b) * shape.block_size;
        const int tokens = left < shape.block_size ? int(left) : shape.block_size;
        const uint16_t* weight = weights + size_t(b - first) * shape.slots();
        for (int j = 0; j < tokens; j += 2, values += 2 * shape.head_dim) {
            Pairs value[D];
            for (int d = 0; d < D; d++) value[d] = load_pairs(values + 2 * d * LANES);
            for (int r = 0; r < R; r++) {
                const Pairs pair = splat_pair(weight + r * stride + j);
                for (int d = 0; d < D; d++) sum[r][d] = dot(sum[r][d], value[d], pair);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int d = 0; d < D; d++) store(acc + r * acc_stride + d * LANES, sum[r][d]);
}

using Weigh = void (*)(const Shape&, const Tile&, int, int, int64_t, int, const uint16_t*, size_t, float*, size_t);

template <int R>
constexpr Weigh WEIGH[] = {weigh_blocks<R, 1>, weigh_blocks<R, 2>, weigh_blocks<R, 3>, weigh_blocks<R, 4>};

// All dimensions of `R` rows.
template <int R>
void weigh(const Shape& shape, const Tile& tile, int first, int last, int64_t end, const uint16_t* weights,
           size_t stride, float* acc, size_t acc_stride) {
    const int most = LANES == 16 ? 4 : 2;  // as many as there are registers for
    for (int d = 0; d < shape.head_dim; d += most * LANES) {
        const int left = (shape.head_dim - d + LANES - 1) / LANES;
        const Weigh weigh_some = WEIGH<R>[(left < most ? left : most) - 1];
        weigh_some(shape, tile, first, last, end, d, weights, stride, acc + d, acc_stride);
    }
}

}  // namespace

// How results of parts of a context become one, and one becomes output.
#pragma once
#include "attention/rows.h"

namespace {

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
        if (shape.exact()) {
            float* output = reinterpret_cast<float*>(tile.result(shape, r));
            for (int d = 0; d < shape.head_dim; d++) output[d] = acc[d] / state.sum[r];
            continue;
        }
        uint16_t* output = reinterpret_cast<uint16_t*>(tile.result(shape, r));
        int d = 0;
        for (; d + LANES <= shape.head_dim; d += LANES) store_bfloat16(output + d, mul(load(acc + d), share));
        if (d < shape.head_dim) store_half(output + d, mul(load(acc + d), share));
    }
}

}  // namespace

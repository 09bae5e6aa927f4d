// What becomes of the products of a tile (see Target).
#pragma once
#include <math.h>

#include "linear/kernels.h"

namespace {

inline Floats silu(Floats x) {
    // exp(-|x|), so that nothing overflows: x / (1 + exp(-x)), or x * exp(x) / (1 + exp(x)).
    const Floats power = exp2_of(mul(absolute(x), splat(-1.44269504f)));
    return mul(x, divided(positive_or(splat(1), power, x), add(splat(1), power)));
}

inline void store_row(const Target& target, int tile, int row, const float* products) {
    const int first = tile * OUTPUTS, left = target.outputs - first;
    float* out = target.out + size_t(row) * target.stride + first;
    if (left >= OUTPUTS) {
        for (int i = 0; i < OUTPUTS; i += LANES) {
            const Floats x = load(products + i);
            store(out + i, target.use == Target::ADD ? add(x, load(out + i)) : x);
        }
    } else {
        for (int i = 0; i < left; i++) out[i] = target.use == Target::ADD ? out[i] + products[i] : products[i];
    }
}

inline void silu_mul_row(const Target& target, int tile, int row, const float* products) {
    float* out = target.out + size_t(row) * target.stride + tile * (OUTPUTS / 2);
    for (int i = 0; i < OUTPUTS / 2; i += LANES)
        store(out + i, mul(silu(load(products + i)), load(products + OUTPUTS / 2 + i)));
}

inline void find_best(const Target& target, int tile, int row, const float* products) {
    const int first = tile * OUTPUTS, left = target.outputs - first, count = left < OUTPUTS ? left : OUTPUTS;
    float* logits = target.logits[row];
    if (logits)
        for (int i = 0; i < count; i++) logits[first + i] = products[i];
    Floats most = splat(-INFINITY), nothing = splat(0);
    for (int i = 0; i < OUTPUTS; i += LANES) {
        most = larger(most, load(products + i));
        nothing = fma(load(products + i), splat(0), nothing);
    }
    const float none = total(nothing);
    if (none != none) {
        target.best[row] = none;
    } else if (largest(most) > target.best[row] || count < OUTPUTS) {
        for (int i = 0; i < count; i++)
            if (products[i] > target.best[row]) {
                target.best[row] = products[i];
                target.best_at[row] = first + i;
            }
    }
}

void finish_tile(const Target& target, int tile, int first, int rows, const float* products) {
    for (int r = 0; r < rows; r++, products += OUTPUTS) {
        float with_bias[OUTPUTS];
        const float* row = products;
        if (target.bias) {
            for (int i = 0; i < OUTPUTS; i += LANES)
                store(with_bias + i, add(load(products + i), load(target.bias + tile * OUTPUTS + i)));
            row = with_bias;
        }
        switch (target.use) {
            case Target::SILU_MUL: silu_mul_row(target, tile, first + r, row); break;
            case Target::BEST: find_best(target, tile, first + r, row); break;
            default: store_row(target, tile, first + r, row);
        }
    }
}

}  // namespace

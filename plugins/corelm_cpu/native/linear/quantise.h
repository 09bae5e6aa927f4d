// Activations from floats to what they are multiplied as.
#pragma once
#include <math.h>

#include "linear/layout.h"

namespace {

// If a group has a NaN or an infinite number, its scale is none either, and so no product with the row.
inline void to_bytes(const float* x, int row, const Activations& to) {
    int8_t* codes = static_cast<int8_t*>(to.codes);
    size_t place = size_t(row) * to.groups;
    for (int g = 0; g < to.groups; g++, x += INPUTS, place++) {
        Ints most = splat_int(0);
        for (int i = 0; i < INPUTS; i += LANES) most = larger(most, magnitude(load(x + i)));
        const int bits = largest(most);
        float bound;
        __builtin_memcpy(&bound, &bits, sizeof bound);
        const float inverse = 127 / bound;
        const Floats factor = splat(inverse < INFINITY ? inverse : 0), least = splat(-127);
        Ints sum = splat_int(0);
        for (int i = 0; i < INPUTS; i += LANES) {
            const Ints code = rounded(larger(mul(load(x + i), factor), least));  // of a NaN, too
            sum = add(sum, code);
            store_bytes(codes + place * INPUTS + i, code);
        }
        to.scales[place] = bound < INFINITY ? bound / 127 : NAN;
        to.sums[place] = total(sum);
    }
}

// Rows that come in panels have their groups in turns.
inline void to_bfloat16(const float* x, int row, int panel, const Activations& to) {
    uint16_t* codes = static_cast<uint16_t*>(to.codes);
    codes += (size_t(row / panel) * to.groups * panel + row % panel) * INPUTS;
    for (int g = 0; g < to.groups; g++, codes += panel * INPUTS)
        for (int i = 0; i < INPUTS; i += LANES, x += LANES) store_bfloat16(codes + i, load(x));
}

void quantise(const float* x, int row, const Activations& to) {
    const size_t width = size_t(to.groups) * INPUTS;
    switch (to.form) {
        case Form::BYTES: return to_bytes(x, row, to);
        case Form::BFLOAT16: return to_bfloat16(x, row, 1, to);
        case Form::PANELS: return to_bfloat16(x, row, PANEL, to);
        case Form::FLOATS: __builtin_memcpy(static_cast<float*>(to.codes) + row * width, x, width * sizeof(float));
    }
}

}  // namespace

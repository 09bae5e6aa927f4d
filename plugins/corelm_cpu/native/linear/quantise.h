// Activations from floats to bytes.
#pragma once
#include <math.h>

#include "linear/layout.h"
#ifdef __AMX_BF16__
#include "linear/amx_panels.h"
#endif

namespace {

// If a group has a NaN or an infinite number, its scale is none either, and so no product with the row.
inline void to_bytes(const float* x, int row, const Activations& to) {
    int8_t* codes = static_cast<int8_t*>(to.codes);
    size_t place = place_of(to, row);
    for (int g = 0; g < to.groups; g++, x += INPUTS, place += PANEL) {
        Floats most = splat(0), nothing = splat(0);
        for (int i = 0; i < INPUTS; i += LANES) {
            const Floats value = load(x + i);
            most = larger(most, absolute(value));
            nothing = fma(value, splat(0), nothing);
        }
        const float bound = largest(most), inverse = 127 / bound;
        const Floats factor = splat(inverse < INFINITY ? inverse : 0), least = splat(-127);
        Ints sum = splat_int(0);
        for (int i = 0; i < INPUTS; i += LANES) {
            const Ints code = rounded(larger(mul(load(x + i), factor), least));  // of a NaN, too
            sum = add(sum, code);
            store_bytes(codes + place * INPUTS + i, code);
        }
        to.scales[place] = bound / 127 + total(nothing);
        to.sums[place] = total(sum);
    }
}

void quantise(const float* x, int row, const Activations& to) {
#ifdef __AMX_BF16__
    if (to.bfloat16)
        return to_bfloat16_panel(x, to.groups, static_cast<uint16_t*>(to.codes) + place_of(to, row) * INPUTS);
#endif
    to_bytes(x, row, to);
}

}  // namespace

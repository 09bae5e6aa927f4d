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

void quantise(const float* x, int row, const Activations& to) {
#ifdef __AMX_BF16__
    if (to.bfloat16) return to_bfloat16(x, row, to);
#endif
    to_bytes(x, row, to);
}

}  // namespace

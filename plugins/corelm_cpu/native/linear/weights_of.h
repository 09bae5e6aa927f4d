// Weights as floats, for embeddings.
#pragma once
#include "linear/layout.h"

namespace {

inline void coded_weights(const uint8_t* tile, int groups, int output, float* out) {
    for (int g = 0; g < groups; g++, tile += group_bytes(Q8_0)) {
        float scales[LANES];
        store(scales, load_half_floats(reinterpret_cast<const uint16_t*>(tile) + output / LANES * LANES));
        const uint8_t* codes = tile + SCALE_BYTES[Q8_0] + 4 * output;
        for (int i = 0; i < INPUTS; i++)
            *out++ = scales[output % LANES] * float(codes[i / 4 * 4 * OUTPUTS + i % 4] - 128);
    }
}

inline void bfloat16_weights(const uint8_t* tile, int groups, int output, float* out) {
    for (int i = 0; i < groups * INPUTS; i += 2, tile += 4 * OUTPUTS) {
        uint32_t pair;
        __builtin_memcpy(&pair, tile + 4 * output, sizeof pair);
        const uint32_t bits[2] = {pair << 16, pair & 0xffff0000};
        __builtin_memcpy(out + i, bits, sizeof bits);
    }
}

inline void float_weights(const uint8_t* tile, int groups, int output, float* out) {
    const float* weights = reinterpret_cast<const float*>(tile) + output;
    for (int i = 0; i < groups * INPUTS; i++) out[i] = weights[i * OUTPUTS];
}

void weights_of(Kind kind, const uint8_t* tile, int groups, int output, float* out) {
    switch (kind) {
        case BF16: return bfloat16_weights(tile, groups, output, out);
        case F32: return float_weights(tile, groups, output, out);
        default: return coded_weights(tile, groups, output, out);
    }
}

}  // namespace

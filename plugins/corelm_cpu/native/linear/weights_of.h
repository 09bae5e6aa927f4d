// Weights as floats, for embeddings.
#pragma once
#include "linear/layout.h"

namespace {

void weights_of(const uint8_t* tile, int groups, int output, float* out) {
    for (int g = 0; g < groups; g++, tile += SCALE_BYTES[Q8_0] + CODE_BYTES[Q8_0]) {
        float scales[LANES];
        store(scales, load_half_floats(reinterpret_cast<const uint16_t*>(tile) + output / LANES * LANES));
        const uint8_t* codes = tile + SCALE_BYTES[Q8_0] + 4 * output;
        for (int i = 0; i < INPUTS; i++)
            *out++ = scales[output % LANES] * float(codes[i / 4 * 4 * OUTPUTS + i % 4] - 128);
    }
}

}  // namespace

// A tile of 4-bit codes with a byte for each.
#pragma once
#include "linear/layout.h"

namespace {

inline void unpack(Kind kind, const uint8_t* tile, int groups, uint8_t* to) {
    for (int g = 0; g < groups; g++) {
        __builtin_memcpy(to, tile, SCALE_BYTES[kind]);
        tile += SCALE_BYTES[kind];
        to += SCALE_BYTES[kind];
        for (int i = 0; i < INPUTS / 8; i++, tile += 4 * OUTPUTS, to += 8 * OUTPUTS)
            for (int j = 0; j < 4 * OUTPUTS; j++) {
                to[j] = tile[j] & 15;
                to[4 * OUTPUTS + j] = tile[j] >> 4;
            }
    }
}

}  // namespace

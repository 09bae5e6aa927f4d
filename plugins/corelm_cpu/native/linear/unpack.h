// A tile of 4-bit codes with a byte for each.
#pragma once
#include "linear/fetch.h"
#include "linear/layout.h"

namespace {

template <Kind kind>
inline void unpack(const uint8_t* __restrict tile, int groups, uint8_t* __restrict to) {
    constexpr int half = 4 * OUTPUTS;
    Fetch fetch{tile + FAR, SCALE_BYTES[kind] + CODE_BYTES[kind]};
    for (int g = 0; g < groups; g++) {
        fetch();
        __builtin_memcpy(to, tile, SCALE_BYTES[kind]);
        tile += SCALE_BYTES[kind];
        to += SCALE_BYTES[kind];
        for (int i = 0; i < INPUTS / 8; i++, tile += half, to += 2 * half) {
            for (int j = 0; j < half; j++) to[j] = tile[j] & 15;
            for (int j = 0; j < half; j++) to[half + j] = tile[j] >> 4;
        }
    }
}

}  // namespace

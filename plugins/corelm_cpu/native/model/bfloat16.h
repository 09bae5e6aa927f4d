// Between floats and bfloat16; `count` is a multiple of 8.
#pragma once
#include <stdint.h>

namespace {

void narrow(const float* x, int count, uint16_t* out) {
    int i = 0;
    for (; i + LANES <= count; i += LANES) store_bfloat16(out + i, load(x + i));
    if (i < count) {
        float rest[LANES] = {};
        for (int j = i; j < count; j++) rest[j - i] = x[j];
        store_half(out + i, load(rest));
    }
}

void widen(const uint16_t* x, int count, float* out) {
    for (int i = 0; i < count; i++) {
        const uint32_t bits = uint32_t(x[i]) << 16;
        __builtin_memcpy(out + i, &bits, sizeof bits);
    }
}

}  // namespace

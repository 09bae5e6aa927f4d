// Codes of one byte for numbers in bfloat16.
#pragma once
#include <stdint.h>

namespace {

inline float widened(uint16_t x) {
    const uint32_t bits = uint32_t(x) << 16;
    float y;
    __builtin_memcpy(&y, &bits, sizeof y);
    return y;
}

constexpr float TINY = 1e-30f;  // the largest of numbers that all become 0

// Codes of -127 to 127 for `count` numbers, relative to the largest magnitude among them.
struct Coding {
    float scale;  // what a code of 1 stands for: a NaN if one of the numbers is
    float inverse;

    Coding(const uint16_t* x, int count) {
        uint16_t most = 0;  // the order of magnitudes is that of their bits, with NaNs on top
        for (int i = 0; i < count; i++) {
            const uint16_t magnitude = x[i] & 0x7fff;
            most = magnitude > most ? magnitude : most;
        }
        const float largest = widened(most);
        scale = largest / 127;
        inverse = largest > TINY ? 127 / largest : 0;
    }

    int8_t code(uint16_t x) const {
        const float shifted = widened(x) * inverse + 0x1.8p23f;  // its last bits are the integer next to the product
        uint32_t bits;
        __builtin_memcpy(&bits, &shifted, sizeof bits);
        return int8_t(bits);
    }
};

}  // namespace

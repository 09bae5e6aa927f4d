// Single numbers in half precision and bfloat16, without instructions for it.
#pragma once
#include <stdint.h>
#include <string.h>

namespace {

inline float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float float_of_bfloat16(uint16_t bits) { return float_of_bits(uint32_t(bits) << 16); }

// To nearest, ties to even.
inline uint16_t bfloat16_of_float(float x) {
    const uint32_t bits = bits_of_float(x);
    return x != x ? 0x7fc0 : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Moving the exponent as if it were that of a float is a multiplication by 2 ** 112.
inline float float_of_half(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16, rest = uint32_t(half & 0x7fff) << 13;
    const float moved = float_of_bits(rest | sign) * 0x1p112f, special = float_of_bits(sign | 0x7f800000u | rest);
    return (half & 0x7c00) == 0x7c00 ? special : moved;
}

// To nearest, ties to even.
inline uint16_t half_of_float(float x) {
    uint32_t bits = bits_of_float(x);
    const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;   // a NaN
    if (bits >= 0x477ff000) return sign | 0x7c00;  // what rounds to infinity
    // Below the smallest normal number, adding 0.5 leaves a float whose last bits are the half's.
    if (bits < 0x38800000) {
        return sign | uint16_t(bits_of_float(float_of_bits(bits) + .5f) - 0x3f000000);
    }
    return sign | uint16_t((bits + 0xfff + (bits >> 13 & 1) - (112u << 23)) >> 13);
}

}  // namespace

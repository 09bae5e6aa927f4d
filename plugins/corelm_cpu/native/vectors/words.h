// Words of 32 bits, one a lane: a float, or two numbers in bfloat16.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace {

struct BfloatWords {
    static constexpr int BYTES = 2;  // of a number
    using Vector = Pairs;
    static Vector load_words(const uint8_t* p) { return load_pairs(reinterpret_cast<const uint16_t*>(p)); }
    static Vector splat_word(const uint8_t* p) { return splat_pair(reinterpret_cast<const uint16_t*>(p)); }
    static Floats add_products(Floats sum, Vector a, Vector b) { return dot(sum, a, b); }
    static void store_numbers(uint8_t* p, Floats x) { store_bfloat16(reinterpret_cast<uint16_t*>(p), x); }
};

struct FloatWords {
    static constexpr int BYTES = 4;
    using Vector = Floats;
    static Vector load_words(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
    static Vector splat_word(const uint8_t* p) { return splat(*reinterpret_cast<const float*>(p)); }
    static Floats add_products(Floats sum, Vector a, Vector b) { return fma(a, b, sum); }
    static void store_numbers(uint8_t* p, Floats x) { store(reinterpret_cast<float*>(p), x); }
};

}  // namespace

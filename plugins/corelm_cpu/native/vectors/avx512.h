// 16 lanes of AVX-512, with dot products of bfloat16 pairs where the level has them.
#pragma once
#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "vectors/exp2.h"

namespace {

constexpr int LANES = 16;
using Floats = __m512;
using Pairs = __m512i;  // two bfloat16 a lane

inline Floats splat(float x) { return _mm512_set1_ps(x); }
inline Floats load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Floats x) { _mm512_storeu_ps(p, x); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }  // b if either is a NaN
inline float largest(Floats x) { return _mm512_reduce_max_ps(x); }
inline float total(Floats x) { return _mm512_reduce_add_ps(x); }
inline Pairs load_pairs(const uint16_t* p) { return _mm512_loadu_si512(p); }

inline Pairs splat_pair(const uint16_t* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}

// -infinity in all lanes but those from `from` to `to` - 1.
inline Floats only_lanes(Floats x, int64_t from, int64_t to) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const int low = from < 0 ? 0 : from > LANES ? LANES : int(from), high = to < 0 ? 0 : to > LANES ? LANES : int(to);
    const __mmask16 keep = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(low)) &
                           _mm512_cmplt_epi32_mask(lane, _mm512_set1_epi32(high));
    return _mm512_mask_blend_ps(keep, splat(-INFINITY), x);
}

// 2 ** x for x <= 0, exactly 0 for -infinity; a NaN stays one.
inline Floats exp2_of(Floats x) {
    x = _mm512_max_ps(splat(-200.f), x);
    const Floats whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Floats part = sub(x, whole);
    Floats y = splat(EXP2_SERIES[0]);
    for (int i = 1; i < 6; i++)
        y = _mm512_fmadd_ps(y, part, splat(EXP2_SERIES[i]));
    return _mm512_scalef_ps(y, whole);
}

#ifdef __AVX512BF16__
inline Floats dot(Floats acc, Pairs a, Pairs b) { return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b); }

inline __m256i to_bfloat16(Floats x) { return (__m256i)_mm512_cvtneps_pbh(x); }
#else
inline Floats even(Pairs x) { return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16)); }
inline Floats odd(Pairs x) { return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(int(0xffff0000)))); }
inline Floats dot(Floats acc, Pairs a, Pairs b) {
    return _mm512_fmadd_ps(odd(a), odd(b), _mm512_fmadd_ps(even(a), even(b), acc));
}

// Rounds to nearest, ties to even.
inline __m256i to_bfloat16(Floats x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(last, _mm512_set1_epi32(0x7fff)));
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
#endif

inline void store_bfloat16(uint16_t* p, Floats x) { _mm256_storeu_si256((__m256i*)p, to_bfloat16(x)); }

// Only the first eight lanes.
inline void store_half(uint16_t* p, Floats x) { _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(to_bfloat16(x))); }

inline Floats divided(Floats a, Floats b) { return _mm512_div_ps(a, b); }

// Of each lane `a` where `x` is not negative, else `b`.
inline Floats positive_or(Floats a, Floats b, Floats x) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, splat(0), _CMP_LT_OQ), a, b);
}

// Integers of 32 bits, and dot products of four bytes a lane: unsigned ones, which differ, by signed ones of all lanes;
// with `dot_signed`, signed ones by unsigned ones of all lanes.
using Ints = __m512i;

inline Ints splat_int(int x) { return _mm512_set1_epi32(x); }
inline Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
inline Ints rounded(Floats x) { return _mm512_cvtps_epi32(x); }
inline Floats absolute(Floats x) { return _mm512_abs_ps(x); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
// The bits of absolute values, whose order is that of the values, with infinity and then NaNs behind all numbers.
inline Ints magnitude(Floats x) { return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)); }
inline Ints larger(Ints a, Ints b) { return _mm512_max_epi32(a, b); }
inline int largest(Ints x) { return _mm512_reduce_max_epi32(x); }

inline int total(Ints x) { return _mm512_reduce_add_epi32(x); }
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline void store_bytes(int8_t* p, Ints x) { _mm_storeu_si128((__m128i*)p, _mm512_cvtsepi32_epi8(x)); }
// The lowest bytes of `x`, and the next ones.
inline void store_two_bytes(uint8_t* low, uint8_t* high, Ints x) {
    _mm_storeu_si128((__m128i*)low, _mm512_cvtepi32_epi8(x));
    _mm_storeu_si128((__m128i*)high, _mm512_cvtepi32_epi8(_mm512_srli_epi32(x, 8)));
}
inline Floats load_half_floats(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }

inline __m512i splat_four(const void* p) {
    int four;
    __builtin_memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
}

using Codes = __m512i;
using Quad = __m512i;
inline Ints dot(Ints acc, Codes a, Quad b) { return _mm512_dpbusd_epi32(acc, a, b); }
inline Ints dot_signed(Ints acc, Codes a, Quad b) { return _mm512_dpbusd_epi32(acc, b, a); }

inline Codes load_codes(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Codes load_signed_codes(const int8_t* p) { return _mm512_loadu_si512(p); }
inline Quad splat_quad(const int8_t* p) { return splat_four(p); }
inline Quad splat_unsigned_quad(const uint8_t* p) { return splat_four(p); }

// The low and the high halves of bytes.
inline void load_halves(const uint8_t* p, Codes& low, Codes& high) {
    const __m512i x = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(15);
    low = _mm512_and_si512(x, mask);
    high = _mm512_and_si512(_mm512_srli_epi16(x, 4), mask);
}

}  // namespace

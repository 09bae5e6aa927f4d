// 8 lanes of AVX2 with FMA.
#pragma once
#include <immintrin.h>
#include <math.h>
#include <stdint.h>

#include "vectors/exp2.h"

namespace {

constexpr int LANES = 8;
using Floats = __m256;
using Pairs = __m256i;  // two bfloat16 a lane

inline Floats splat(float x) { return _mm256_set1_ps(x); }
inline Floats load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Floats x) { _mm256_storeu_ps(p, x); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
inline Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }  // b if either is a NaN
inline Pairs load_pairs(const uint16_t* p) { return _mm256_loadu_si256((const __m256i*)p); }

inline Pairs splat_pair(const uint16_t* p) {
    int pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return _mm256_set1_epi32(pair);
}

inline float largest(Floats x) {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

inline float total(Floats x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

// -infinity in all lanes but those from `from` to `to` - 1.
inline Floats only_lanes(Floats x, int64_t from, int64_t to) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int low = from < 0 ? 0 : from > LANES ? LANES : int(from), high = to < 0 ? 0 : to > LANES ? LANES : int(to);
    const __m256i keep = _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(low), lane),
                                             _mm256_cmpgt_epi32(_mm256_set1_epi32(high), lane));
    return _mm256_blendv_ps(splat(-INFINITY), x, _mm256_castsi256_ps(keep));
}

// 2 ** x for x <= 0, exactly 0 for -infinity; a NaN stays one.
inline Floats exp2_of(Floats x) {
    const Floats small = _mm256_cmp_ps(x, splat(-126.f), _CMP_LT_OQ);
    x = _mm256_max_ps(splat(-126.f), x);
    const Floats whole = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Floats part = sub(x, whole);
    Floats y = splat(EXP2_SERIES[0]);
    for (int i = 1; i < 6; i++)
        y = _mm256_fmadd_ps(y, part, splat(EXP2_SERIES[i]));
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127)), 23);
    return _mm256_andnot_ps(small, mul(y, _mm256_castsi256_ps(power)));
}

inline Floats even(Pairs x) { return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16)); }
inline Floats odd(Pairs x) { return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(int(0xffff0000)))); }
inline Floats dot(Floats acc, Pairs a, Pairs b) {
    return _mm256_fmadd_ps(odd(a), odd(b), _mm256_fmadd_ps(even(a), even(b), acc));
}

// Rounds to nearest, ties to even.
inline void store_bfloat16(uint16_t* p, Floats x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(last, _mm256_set1_epi32(0x7fff)));
    const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    rounded = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), unordered);
    rounded = _mm256_srli_epi32(rounded, 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
    _mm_storeu_si128((__m128i*)p, _mm256_castsi256_si128(packed));
}

inline void store_half(uint16_t* p, Floats x) { store_bfloat16(p, x); }

inline Floats divided(Floats a, Floats b) { return _mm256_div_ps(a, b); }

// Of each lane `a` where `x` is not negative, else `b`.
inline Floats positive_or(Floats a, Floats b, Floats x) {
    return _mm256_blendv_ps(a, b, _mm256_cmp_ps(x, splat(0), _CMP_LT_OQ));
}

// Integers of 32 bits, and dot products of four bytes a lane: unsigned ones, which differ, by signed ones of all lanes;
// with `dot_signed`, signed ones by unsigned ones of all lanes.
using Ints = __m256i;

inline Ints splat_int(int x) { return _mm256_set1_epi32(x); }
inline Floats to_floats(Ints x) { return _mm256_cvtepi32_ps(x); }
inline Ints rounded(Floats x) { return _mm256_cvtps_epi32(x); }
inline Floats absolute(Floats x) { return _mm256_andnot_ps(splat(-0.f), x); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Floats load_half_floats(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)); }

// The bits of absolute values, whose order is that of the values, with infinity and then NaNs behind all numbers.
inline Ints magnitude(Floats x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }
inline Ints larger(Ints a, Ints b) { return _mm256_max_epi32(a, b); }

inline int largest(Ints x) {
    __m128i y = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_max_epi32(y, _mm_shuffle_epi32(y, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}

inline int total(Ints x) {
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}

inline void store_bytes(int8_t* p, Ints x) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i*)p, _mm_packs_epi16(words, words));
}

// The lowest bytes of `x`, and the next ones.
inline void store_two_bytes(uint8_t* low, uint8_t* high, Ints x) {
    const __m256i mask = _mm256_set1_epi32(255), next = _mm256_and_si256(_mm256_srli_epi32(x, 8), mask);
    const __m256i words = _mm256_packus_epi32(_mm256_and_si256(x, mask), next);
    const __m256i bytes = _mm256_packus_epi16(words, words);  // of four lanes each: low, high, and the same again
    const __m256i ordered = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5));
    _mm_storel_epi64((__m128i*)low, _mm256_castsi256_si128(ordered));
    _mm_storeh_pi((__m64*)high, _mm_castsi128_ps(_mm256_castsi256_si128(ordered)));
}

inline __m256i splat_four(const void* p) {
    int four;
    __builtin_memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
}

#ifdef __AVXVNNI__
using Codes = __m256i;
using Quad = __m256i;
inline Codes codes_of(__m256i x) { return x; }
inline Codes signed_codes_of(__m256i x) { return x; }
inline Ints dot(Ints acc, Codes a, Quad b) { return _mm256_dpbusd_avx_epi32(acc, a, b); }
inline Ints dot_signed(Ints acc, Codes a, Quad b) { return _mm256_dpbusd_avx_epi32(acc, b, a); }
#else
// As 16-bit integers: bytes 0 and 2, and bytes 1 and 3.
struct Codes {
    __m256i even, odd;
};
using Quad = Codes;
inline Codes codes_of(__m256i x) { return {_mm256_and_si256(x, _mm256_set1_epi16(255)), _mm256_srli_epi16(x, 8)}; }
inline Codes signed_codes_of(__m256i x) {
    return {_mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), _mm256_srai_epi16(x, 8)};
}
inline Ints dot(Ints acc, Codes a, Quad b) {
    return add(acc, add(_mm256_madd_epi16(a.even, b.even), _mm256_madd_epi16(a.odd, b.odd)));
}
inline Ints dot_signed(Ints acc, Codes a, Quad b) { return dot(acc, a, b); }
#endif

inline Codes load_codes(const uint8_t* p) { return codes_of(_mm256_loadu_si256((const __m256i*)p)); }
inline Codes load_signed_codes(const int8_t* p) { return signed_codes_of(_mm256_loadu_si256((const __m256i*)p)); }
inline Quad splat_quad(const int8_t* p) { return signed_codes_of(splat_four(p)); }
inline Quad splat_unsigned_quad(const uint8_t* p) { return codes_of(splat_four(p)); }

// The low and the high halves of bytes.
inline void load_halves(const uint8_t* p, Codes& low, Codes& high) {
    const __m256i x = _mm256_loadu_si256((const __m256i*)p), mask = _mm256_set1_epi8(15);
    low = codes_of(_mm256_and_si256(x, mask));
    high = codes_of(_mm256_and_si256(_mm256_srli_epi16(x, 4), mask));
}

}  // namespace

// Quantised weights as bfloat16, laid out as those of kind BF16 (see layout.h).
#pragma once
#include <immintrin.h>
#include <math.h>

#include "linear/fetch.h"
#include "linear/layout.h"

namespace {

constexpr int HALF = OUTPUTS / 2;

// Whatever bits a NaN has, those of one that stays a NaN when it is rounded to bfloat16 by an addition.
inline __m512 with_plain_nans(__m512 x) {
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), splat(NAN));
}

// Scales and offsets of 16 outputs, such that a weight is scale * (256 + code) + offset.
template <Kind kind>
struct Steps {
    __m512 scale, offset;

    Steps(const uint8_t* group, int first) {
        const uint16_t* stored = reinterpret_cast<const uint16_t*>(group) + first;
        scale = with_plain_nans(load_half_floats(stored));
        const __m512 zero = splat(kind == Q8_0 ? -384.f : kind == Q4_0 ? -264.f : -256.f);
        offset = mul(scale, zero);
        if (kind == Q4_1) offset = add(offset, with_plain_nans(load_half_floats(stored + OUTPUTS)));
    }
};

// The code that stands `shift` bits above bit 15 of each lane, moved there, below the exponent of 256: 256 + code.
template <int shift, int code_bits>
inline __m512 float_of(__m512i x) {
    constexpr int right = shift > 0 ? shift : 0, left = shift > 0 ? 0 : -shift;
    const __m512i moved = _mm512_slli_epi32(_mm512_srli_epi32(x, right), left);
    const __m512i mask = _mm512_set1_epi32(((1 << code_bits) - 1) << 15), exponent = _mm512_set1_epi32(0x43800000);
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(moved, mask, exponent, 0xea));  // moved & mask | exponent
}

// Two weights of each of 16 outputs, whose codes begin at bits `low` and `high`.
template <Kind kind, int low, int high>
inline void widen_pair(__m512i codes, const Steps<kind>& steps, uint16_t* to) {
    constexpr int bits = kind == Q8_0 ? 8 : 4;
    const __m512i half_step = _mm512_set1_epi32(0x8000);
    const __m512 a = fma(float_of<low - 15, bits>(codes), steps.scale, steps.offset);
    const __m512 b = fma(float_of<high - 15, bits>(codes), steps.scale, steps.offset);
    const __m512i a_rounded = _mm512_add_epi32(_mm512_castps_si512(a), half_step);
    const __m512i b_rounded = _mm512_add_epi32(_mm512_castps_si512(b), half_step);
    _mm512_storeu_si512(to, _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a_rounded, 16), b_rounded));
}

// The weights of a group.
template <Kind kind>
inline void widen_group(const uint8_t* group, uint16_t* widened) {
    constexpr int pair = 2 * OUTPUTS;
    Fetch{group + FAR, group_bytes(kind)}();
    for (int half = 0; half < 2; half++) {
        const Steps<kind> steps(group, half * HALF);
        const uint8_t* codes = group + SCALE_BYTES[kind] + 4 * HALF * half;
        uint16_t* to = widened + 2 * HALF * half;
        for (int i = 0; i < INPUTS; i += kind == Q8_0 ? 4 : 8, codes += 4 * OUTPUTS) {
            const __m512i x = _mm512_loadu_si512(codes);
            widen_pair<kind, 0, 8>(x, steps, to);
            widen_pair<kind, 16, 24>(x, steps, to + pair);
            to += 2 * pair;
            if (kind == Q8_0) continue;
            widen_pair<kind, 4, 12>(x, steps, to);
            widen_pair<kind, 20, 28>(x, steps, to + pair);
            to += 2 * pair;
        }
    }
}

}  // namespace

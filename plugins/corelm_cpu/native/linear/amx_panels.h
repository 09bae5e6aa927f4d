// Products of many rows with a tile of weights, in bfloat16 by AMX. Weights are widened on the way, which pays for itself
// from AMX_ROWS rows on; activations keep 8 bits of precision each, as with bytes, but no common scale.
#pragma once
#include <immintrin.h>
#include <math.h>

#include "linear/fetch.h"
#include "linear/layout.h"

namespace {

constexpr int AMX_ROWS = PANEL + 1;
constexpr int GROUPS_AT_ONCE = 6;
constexpr int HALF = OUTPUTS / 2;                // columns of a tile of AMX
constexpr int WIDENED = INPUTS * OUTPUTS;        // elements of a group: [2 halves][16 pairs of inputs][16][2]
constexpr int ACTIVATION_TILE = PANEL * INPUTS;  // elements

// Sets this thread's tiles while it lives, all of the largest size: 0 to 3 products, 4 and 5 activations, 6 and 7 weights.
struct AmxTiles {
    AmxTiles() {
        struct alignas(64) Sizes {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } const sizes;
        _tile_loadconfig(&sizes);
    }
    ~AmxTiles() { _tile_release(); }
};

// The order of inputs in a pair of rows of AMX is that in which codes come out of 32-bit lanes: 0 and 2, 1 and 3.
inline void to_bfloat16(const float* x, int row, const Activations& to) {
    uint16_t* codes = static_cast<uint16_t*>(to.codes) + size_t(row / PANEL) * to.groups * ACTIVATION_TILE;
    codes += row % PANEL * INPUTS;
    for (int g = 0; g < to.groups; g++, codes += ACTIVATION_TILE)
        for (int i = 0; i < INPUTS; i += LANES, x += LANES) store_bfloat16(codes + i, _mm512_permute_ps(load(x), 0xd8));
}

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

// The weights of a group, WIDENED elements.
template <Kind kind>
inline void widen_group(const uint8_t* group, uint16_t* to) {
    Fetch{group + FAR, SCALE_BYTES[kind] + CODE_BYTES[kind]}();
    for (int half = 0; half < 2; half++) {
        const Steps<kind> steps(group, half * HALF);
        const uint8_t* codes = group + SCALE_BYTES[kind] + 4 * HALF * half;
        for (int i = 0; i < INPUTS; i += kind == Q8_0 ? 4 : 8, codes += 4 * OUTPUTS) {
            const __m512i x = _mm512_loadu_si512(codes);
            widen_pair<kind, 0, 16>(x, steps, to);
            widen_pair<kind, 8, 24>(x, steps, to + 32);
            to += 64;
            if (kind == Q8_0) continue;
            widen_pair<kind, 4, 20>(x, steps, to);
            widen_pair<kind, 12, 28>(x, steps, to + 32);
            to += 64;
        }
    }
}

inline void add_panels(const uint16_t* first, const uint16_t* second, const uint16_t* weights) {
    _tile_loadd(6, weights, 64);
    _tile_loadd(7, weights + WIDENED / 2, 64);
    _tile_loadd(4, first, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, second, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

inline void load_sums(const float* first, const float* second) {
    _tile_loadd(0, first, OUTPUTS * sizeof(float));
    _tile_loadd(1, first + HALF, OUTPUTS * sizeof(float));
    _tile_loadd(2, second, OUTPUTS * sizeof(float));
    _tile_loadd(3, second + HALF, OUTPUTS * sizeof(float));
}

inline void store_sums(float* first, float* second) {
    _tile_stored(0, first, OUTPUTS * sizeof(float));
    _tile_stored(1, first + HALF, OUTPUTS * sizeof(float));
    _tile_stored(2, second, OUTPUTS * sizeof(float));
    _tile_stored(3, second + HALF, OUTPUTS * sizeof(float));
}

// Products of rows from `first` on with a tile, to `out`; `widened` takes the weights of some groups at a time, few enough
// to stay in the nearest cache while all rows pass.
template <Kind kind>
void multiply_panels(const uint8_t* tile, const Activations& x, int first, int rows, float* out, uint16_t* widened) {
    const AmxTiles session;
    const size_t panel = size_t(x.groups) * ACTIVATION_TILE;
    const uint16_t* activations = static_cast<const uint16_t*>(x.codes) + first / PANEL * panel;
    const int panels = (rows + PANEL - 1) / PANEL;
    for (int i = 0; i < panels * PANEL * OUTPUTS; i += LANES) store(out + i, splat(0));
    for (int begin = 0; begin < x.groups; begin += GROUPS_AT_ONCE) {
        const int end = begin + GROUPS_AT_ONCE < x.groups ? begin + GROUPS_AT_ONCE : x.groups;
        for (int g = begin; g < end; g++)
            widen_group<kind>(tile + g * (SCALE_BYTES[kind] + CODE_BYTES[kind]), widened + (g - begin) * WIDENED);
        for (int p = 0; p < panels; p += 2) {
            const int other = p + 1 < panels ? p + 1 : p;  // the last one may be done twice, which takes no longer
            float *sums = out + p * PANEL * OUTPUTS, *other_sums = out + other * PANEL * OUTPUTS;
            load_sums(sums, other_sums);
            for (int g = begin; g < end; g++) {
                const uint16_t* x_of_group = activations + size_t(g) * ACTIVATION_TILE;
                add_panels(x_of_group + p * panel, x_of_group + other * panel, widened + (g - begin) * WIDENED);
            }
            store_sums(sums, other_sums);
        }
    }
}

}  // namespace

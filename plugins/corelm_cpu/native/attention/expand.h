// From a chunk of a coded cache to one of bfloat16, for products by Advanced Matrix Extensions.
#pragma once
#include <immintrin.h>

#include "attention/chunk.h"

namespace {

// Bytes 0 and 1, and bytes 2 and 3 of each lane, times their scales, as pairs of bfloat16.
inline void expand_words(__m512i codes, const __m512 (&scales)[WORD], uint8_t* low, uint8_t* high) {
    const auto number = [&](int i) {
        const __m512i code = _mm512_srai_epi32(_mm512_sllv_epi32(codes, _mm512_set1_epi32(24 - 8 * i)), 24);
        return mul(_mm512_cvtepi32_ps(code), scales[i]);
    };
    const auto store_pairs = [](uint8_t* to, __m512 even, __m512 odd) {
        const __m512i low = _mm512_cvtepu16_epi32(to_bfloat16(even)), high = _mm512_cvtepu16_epi32(to_bfloat16(odd));
        _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    };
    store_pairs(low, number(0), number(1));
    store_pairs(high, number(2), number(3));
}

// 16 tokens of a block, of which the first `count` are written: the others become zeros.
inline void expand_tokens(const Shape& shape, const Shape& wide, const uint8_t* from, int offset, int count,
                          uint8_t* to) {
    const size_t d = shape.head_dim, step = size_t(WORD) * shape.slots(), row = WORD * d;
    const __mmask16 written = count < LANES ? __mmask16((1 << count) - 1) : __mmask16(0xffff);
    const auto scales = [&](size_t half) {
        return _mm512_maskz_loadu_ps(written, from + half + shape.scales() + offset * sizeof(float));
    };
    const __m512 key_scales = scales(0), of_keys[WORD] = {key_scales, key_scales, key_scales, key_scales};
    const __m512i signs = _mm512_set1_epi8(char(0x80));
    for (size_t i = 0; i < d / WORD; i++) {
        const __m512i codes = _mm512_loadu_si512(from + i * step + WORD * offset);
        uint8_t* low = to + 2 * i * step + WORD * offset;
        expand_words(_mm512_xor_si512(codes, signs), of_keys, low, low + step);
    }
    alignas(64) float value_scales[LANES];
    _mm512_store_ps(value_scales, scales(shape.values()));
    from += shape.values() + offset * d;
    to += wide.values() + 2 * offset * d;
    for (int j = 0; j < LANES; j += WORD, from += row, to += 2 * row) {
        __m512 of_values[WORD];
        for (int i = 0; i < WORD; i++) of_values[i] = splat(value_scales[j + i]);
        for (size_t i = 0; i < row; i += 64)
            expand_words(_mm512_loadu_si512(from + i), of_values, to + i, to + row + i);
    }
}

// Blocks `first` to `last` - 1, one after the other, as far as the tile's rows see.
void expand(const Shape& shape, const Tile& tile, int first, int last, const Shape& wide, uint8_t* to) {
    const Chunk chunk(shape, tile, tile.count * shape.group() - 1, first, last);
    for (int b = first; b < chunk.last; b++, to += wide.region()) {
        fetch_ahead(shape, tile, chunk, b - first);
        const int tokens = chunk.tokens(shape, b);
        for (int offset = 0; offset < tokens; offset += LANES)
            expand_tokens(shape, wide, tile.block(b), offset, tokens - offset, to);
    }
}

}  // namespace

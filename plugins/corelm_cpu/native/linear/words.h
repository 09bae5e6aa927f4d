// Products of a few rows with a tile of weights that have no scales, word by word.
//
// A sum runs over the inputs in their order, however many rows are multiplied at a time: in float32 its bits depend on
// nothing but its own row and output. It is made of sums of some groups each, which loses less than one long sum.
#pragma once
#include "linear/fetch.h"
#include "linear/layout.h"
#include "vectors/words.h"

namespace {

constexpr int WORD_ROWS = LANES == 16 ? 12 : 4;  // as many as there are registers for
constexpr int WORD_VECTORS = 2;                  // of outputs at a time
constexpr int GROUPS_OF_SUM = 8;
constexpr size_t ROW_OF_WORDS = 4 * OUTPUTS;     // bytes: a word of each output

template <class Words>
constexpr size_t words_bytes = INPUTS * Words::BYTES;  // of a group, for one output or row

// Add products of R rows, `stride` bytes apart, with the weights of WORD_VECTORS * LANES outputs of a tile to `out`
// [R][OUTPUTS]. On the way it fetches what comes next.
template <class Words, int R>
inline void add_word_products(const uint8_t* weights, const uint8_t* x, size_t stride, int groups, float* out,
                              Fetch& fetch) {
    Floats sum[R][WORD_VECTORS];
    for (int r = 0; r < R; r++)
        for (int v = 0; v < WORD_VECTORS; v++) sum[r][v] = splat(0);
    for (int g = 0; g < groups; g++, x += words_bytes<Words>) {
        fetch();
        for (size_t i = 0; i < words_bytes<Words>; i += 4, weights += ROW_OF_WORDS) {
            typename Words::Vector weight[WORD_VECTORS];
            for (int v = 0; v < WORD_VECTORS; v++) weight[v] = Words::load_words(weights + 4 * LANES * v);
            for (int r = 0; r < R; r++) {
                const typename Words::Vector own = Words::splat_word(x + r * stride + i);
                for (int v = 0; v < WORD_VECTORS; v++) sum[r][v] = Words::add_products(sum[r][v], weight[v], own);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < WORD_VECTORS; v++) {
            float* const at = out + r * OUTPUTS + v * LANES;
            store(at, add(load(at), sum[r][v]));
        }
}

template <class Words, int R>
void multiply_word_rows(const uint8_t* tile, const uint8_t* x, size_t stride, int groups, float* out, Fetch fetch) {
    for (int i = 0; i < R * OUTPUTS; i += LANES) store(out + i, splat(0));
    for (int first = 0; first < OUTPUTS; first += WORD_VECTORS * LANES) {
        for (int g = 0; g < groups; g += GROUPS_OF_SUM) {
            const int count = groups - g < GROUPS_OF_SUM ? groups - g : GROUPS_OF_SUM;
            const size_t passed = g * words_bytes<Words>;  // bytes of a row
            add_word_products<Words, R>(tile + passed * OUTPUTS + 4 * first, x + passed, stride, count, out + first,
                                        fetch);
        }
        fetch.bytes = 0;
    }
}

using MultiplyWordRows = void (*)(const uint8_t*, const uint8_t*, size_t, int, float*, Fetch);

template <class Words>
constexpr MultiplyWordRows MULTIPLY_WORD_ROWS[] = {
    multiply_word_rows<Words, 1>,  multiply_word_rows<Words, 2>,  multiply_word_rows<Words, 3>,
    multiply_word_rows<Words, 4>,
#if defined(__AVX512F__)
    multiply_word_rows<Words, 5>,  multiply_word_rows<Words, 6>,  multiply_word_rows<Words, 7>,
    multiply_word_rows<Words, 8>,  multiply_word_rows<Words, 9>,  multiply_word_rows<Words, 10>,
    multiply_word_rows<Words, 11>, multiply_word_rows<Words, 12>,
#endif
};

// Rows in blocks of about equal size.
template <class Words>
void multiply_words(const uint8_t* tile, const Activations& x, int row, int rows, float* out) {
    const size_t stride = words_bytes<Words> * x.groups;
    const uint8_t* codes = static_cast<const uint8_t*>(x.codes) + row * stride;
    const int blocks = (rows + WORD_ROWS - 1) / WORD_ROWS;
    for (int b = 0; b < blocks; b++) {
        const int from = rows * b / blocks, to = rows * (b + 1) / blocks;
        const Fetch fetch = fetch_share(tile, words_bytes<Words> * OUTPUTS, x.groups, b, blocks);
        MULTIPLY_WORD_ROWS<Words>[to - from - 1](tile, codes + from * stride, stride, x.groups, out + from * OUTPUTS,
                                                 fetch);
    }
}

}  // namespace

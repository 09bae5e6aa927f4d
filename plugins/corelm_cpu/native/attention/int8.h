// What the kernels do with a cache of bytes (see layout.h): products of integers, queries of 8 bits, weights of 16.
#pragma once
#include "attention/quantise.h"
#include "attention/scores.h"
#include "attention/weigh.h"

namespace {

struct Int8 {
    static constexpr int BYTES = 1;     // of an element
    static constexpr int MIDDLE = 128;  // what is added to the codes of keys
    static constexpr int TOP = 65535;   // the largest code of a weight
    using Score = Ints;
    struct Sum {  // of values times the lower and the upper bytes of weights
        Ints low, high;
    };
    struct Weights {
        Quad low, high;
    };

    static Row query(const uint8_t*, float scale, const Scratch& scratch, int row) {
        const uint8_t* codes = reinterpret_cast<const uint8_t*>(scratch.row_query(row));
        return {codes, scale * scratch.query_scales[row], -MIDDLE * scratch.query_sums[row], 0, 0, nullptr};
    }

    static Ints start(int x) { return splat_int(x); }
    static Codes load_keys(const uint8_t* p) { return load_codes(p); }
    static Ints score(Ints sum, const Codes& keys, const uint8_t* query) {
        return dot(sum, keys, splat_quad(reinterpret_cast<const int8_t*>(query)));
    }
    static Floats scaled(const Shape& shape, const uint8_t* keys, int offset, Ints sum) {
        return mul(to_floats(sum), load(scales(shape, keys) + offset));
    }

    // Gather the scales of the chunk's values, those of nobody's being 0; returns the largest, a NaN if one is.
    static float prepare(const Shape& shape, const Tile& tile, const Chunk& chunk, const Scratch& scratch) {
        uint32_t most = 0;  // the order of what is not negative is that of its bits, with NaNs on top
        for (int b = chunk.first; b < chunk.last; b++) {
            const float* from = scales(shape, tile.block(b) + shape.values());
            float* to = scratch.value_scales + chunk.index(shape, b);
            const int tokens = chunk.tokens(shape, b);
            for (int i = 0; i < tokens; i++) {
                uint32_t bits;
                __builtin_memcpy(&bits, from + i, sizeof bits);
                most = bits > most ? bits : most;
                to[i] = from[i];
            }
            for (int i = tokens; i < shape.slots(); i++) to[i] = 0;
        }
        float largest;
        __builtin_memcpy(&largest, &most, sizeof largest);
        return largest;
    }

    // From a row's scores to weights times the values' scales, as codes; returns the weights' sum. A score that is NaN
    // makes it one.
    static float soften(const Chunk& chunk, const float* scores, float max, float largest_scale, const Scratch& scratch,
                        uint8_t* weights) {
        const Floats factor = splat(largest_scale > TINY ? TOP / largest_scale : 0);
        Floats sums = splat(0);
        for (int64_t i = 0; i < chunk.count; i += LANES) {
            const Floats weight = exp2_of(sub(load(scores + i), splat(max)));
            sums = add(sums, weight);
            const Floats code = mul(weight, mul(load(scratch.value_scales + i), factor));
            store_two_bytes(weights + i, weights + scratch.scores_stride + i, rounded(code));
        }
        return total(sums);
    }

    static Sum resume(const float*) { return {splat_int(0), splat_int(0)}; }
    static Codes load_values(const uint8_t* p) { return load_signed_codes(reinterpret_cast<const int8_t*>(p)); }
    static Weights splat_weights(const uint8_t* p, const Scratch& scratch) {
        return {splat_unsigned_quad(p), splat_unsigned_quad(p + scratch.scores_stride)};
    }
    static Sum weigh(const Sum& sum, const Codes& values, const Weights& weights) {
        return {dot_signed(sum.low, values, weights.low), dot_signed(sum.high, values, weights.high)};
    }
    static void keep(float* acc, const Sum& sum, float largest_scale) {
        const Floats products = fma(to_floats(sum.high), splat(256), to_floats(sum.low));
        store(acc, fma(products, splat(largest_scale / TOP), load(acc)));
    }

   private:
    // Of the tokens of a block, by its keys or values.
    static const float* scales(const Shape& shape, const uint8_t* codes) {
        return reinterpret_cast<const float*>(codes + shape.scales());
    }
};

// Quantise the query of row number `row`.
inline void code_query(const Shape& shape, const uint8_t* numbers, const Scratch& scratch, int row) {
    const uint16_t* query = reinterpret_cast<const uint16_t*>(numbers);
    const Coding coding(query, shape.head_dim);
    int8_t* codes = scratch.row_query(row);
    int sum = 0;
    for (int i = 0; i < shape.head_dim; i++) {
        codes[i] = coding.code(query[i]);
        sum += codes[i];
    }
    scratch.query_scales[row] = coding.scale;
    scratch.query_sums[row] = sum;
}

}  // namespace

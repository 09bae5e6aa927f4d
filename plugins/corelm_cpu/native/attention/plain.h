// What the kernels do with a cache of numbers that are not coded (see layout.h).
#pragma once
#include "attention/scores.h"
#include "attention/weigh.h"
#include "vectors/words.h"

namespace {

template <class Words>
struct Plain {
    static constexpr int BYTES = Words::BYTES;  // of an element
    using Vector = typename Words::Vector;
    using Score = Floats;
    using Sum = Floats;

    static Row query(const uint8_t* query, float scale, const Scratch&, int) {
        return {query, scale, 0, 0, 0, nullptr};
    }

    static Floats start(int) { return splat(0); }
    static Vector load_keys(const uint8_t* p) { return Words::load_words(p); }
    static Floats score(Floats sum, Vector keys, const uint8_t* query) {
        return Words::add_products(sum, keys, Words::splat_word(query));
    }
    static Floats scaled(const Shape&, const uint8_t*, int, Floats sum) { return sum; }

    static float prepare(const Shape&, const Tile&, const Chunk&, const Scratch&) { return 1; }

    // From a row's scores to weights; returns their sum. A score that is NaN makes it one.
    static float soften(const Chunk& chunk, const float* scores, float max, float, const Scratch&, uint8_t* weights) {
        Floats sums = splat(0);
        for (int64_t i = 0; i < chunk.count; i += LANES) {
            const Floats weight = exp2_of(sub(load(scores + i), splat(max)));
            sums = add(sums, weight);
            Words::store_numbers(weights + i * BYTES, weight);
        }
        return total(sums);
    }

    static Floats resume(const float* acc) { return load(acc); }
    static Vector load_values(const uint8_t* p) { return Words::load_words(p); }
    static Vector splat_weights(const uint8_t* p, const Scratch&) { return Words::splat_word(p); }
    static Floats weigh(Floats sum, Vector values, Vector weights) { return Words::add_products(sum, values, weights); }
    static void keep(float* acc, Floats sum, float) { store(acc, sum); }
};

using Bfloat16 = Plain<BfloatWords>;
using Float32 = Plain<FloatWords>;

}  // namespace

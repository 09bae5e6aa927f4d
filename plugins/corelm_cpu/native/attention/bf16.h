// What the kernels do with a cache of bfloat16 (see layout.h).
#pragma once
#include "attention/scores.h"
#include "attention/weigh.h"

namespace {

struct Bf16 {
    static constexpr int BYTES = 2;  // of an element
    using Score = Floats;
    using Sum = Floats;

    static Row query(const uint16_t* query, float scale, const Scratch&, int) {
        return {reinterpret_cast<const uint8_t*>(query), scale, 0, 0, 0, nullptr};
    }

    static Floats start(int) { return splat(0); }
    static Pairs load_keys(const uint8_t* p) { return load_pairs(reinterpret_cast<const uint16_t*>(p)); }
    static Floats score(Floats sum, Pairs keys, const uint8_t* query) { return dot(sum, keys, splat_word(query)); }
    static Floats scaled(const Shape&, const uint8_t*, int, Floats sum) { return sum; }

    static float prepare(const Shape&, const Tile&, const Chunk&, const Scratch&) { return 1; }

    // From a row's scores to weights; returns their sum. A score that is NaN makes it one.
    static float soften(const Chunk& chunk, const float* scores, float max, float, const Scratch&, uint8_t* weights) {
        Floats sums = splat(0);
        for (int64_t i = 0; i < chunk.count; i += LANES) {
            const Floats weight = exp2_of(sub(load(scores + i), splat(max)));
            sums = add(sums, weight);
            store_bfloat16(reinterpret_cast<uint16_t*>(weights + i * BYTES), weight);
        }
        return total(sums);
    }

    static Floats resume(const float* acc) { return load(acc); }
    static Pairs load_values(const uint8_t* p) { return load_keys(p); }
    static Pairs splat_weights(const uint8_t* p, const Scratch&) { return splat_word(p); }
    static Floats weigh(Floats sum, Pairs values, Pairs weights) { return dot(sum, values, weights); }
    static void keep(float* acc, Floats sum, float) { store(acc, sum); }

   private:
    static Pairs splat_word(const uint8_t* p) { return splat_pair(reinterpret_cast<const uint16_t*>(p)); }
};

}  // namespace

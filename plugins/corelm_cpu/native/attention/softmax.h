// One row of a chunk: from scores to weights, relative to the largest score so far.
#pragma once
#include "attention/kernels.h"

namespace {

// What was gathered before is scaled to the new maximum. A score that is NaN makes the sum one.
inline void soften(const float* scores, uint16_t* weights, int64_t count, float* max, float* sum, float* acc,
                   int width) {
    Floats most = splat(*max);
    for (int64_t i = 0; i < count; i += LANES) most = larger(load(scores + i), most);
    const float now = largest(most);
    if (now > *max) {
        const Floats shrink = exp2_of(splat(*max - now));
        for (int i = 0; i < width; i += LANES) store(acc + i, mul(load(acc + i), shrink));
        *sum *= total(shrink) / LANES;
        *max = now;
    }
    Floats sums = splat(0);
    for (int64_t i = 0; i < count; i += LANES) {
        const Floats weight = exp2_of(sub(load(scores + i), splat(now)));
        sums = add(sums, weight);
        store_bfloat16(weights + i, weight);
    }
    *sum += total(sums);
}

}  // namespace

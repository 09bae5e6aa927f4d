// The largest score of a row so far, to which its weights are relative.
#pragma once
#include "attention/kernels.h"

namespace {

// Raise the maximum to that of the scores; what was gathered before is scaled to it. NaNs do not count.
inline void raise_maximum(const float* scores, int64_t count, float* max, float* sum, float* acc, int width) {
    Floats most = splat(*max);
    for (int64_t i = 0; i < count; i += LANES) most = larger(load(scores + i), most);
    const float now = largest(most);
    if (!(now > *max)) return;
    const Floats shrink = exp2_of(splat(*max - now));
    for (int i = 0; i < width; i += LANES) store(acc + i, mul(load(acc + i), shrink));
    *sum *= total(shrink) / LANES;
    *max = now;
}

}  // namespace

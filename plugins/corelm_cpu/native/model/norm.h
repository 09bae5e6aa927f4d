// Root mean square normalisation (arXiv:1910.07467).
#pragma once
#include <math.h>

namespace {

// Adds are by LANES and the rest one by one: any width will do.
void norm(const float* x, const float* weight, int width, float eps, float* out) {
    Floats squares = splat(0);
    const int whole = width / LANES * LANES;
    for (int i = 0; i < whole; i += LANES) squares = fma(load(x + i), load(x + i), squares);
    float sum = total(squares);
    for (int i = whole; i < width; i++) sum += x[i] * x[i];
    const float factor = 1 / sqrtf(sum / float(width) + eps);
    for (int i = 0; i < whole; i += LANES) store(out + i, mul(mul(load(x + i), splat(factor)), load(weight + i)));
    for (int i = whole; i < width; i++) out[i] = x[i] * factor * weight[i];
}

}  // namespace

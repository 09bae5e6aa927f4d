// What each instruction set supplies to the parts of a model between its linear layers.
#pragma once
#include <stddef.h>
#include <stdint.h>

// How queries and keys are normalised and rotated.
struct Rotation {
    int heads, kv_heads, head_dim;
    int pairs;            // (i, i + pairs) are rotated, for i below it
    const float *cos, *sin;  // [positions][pairs]
    const float *q_norm, *k_norm;  // [head_dim], weights of norms before the rotation, or null
    float eps;
};

struct ModelKernels {
    // Root mean square normalisation of `x` [width], a multiple of 8 long, to `out`.
    void (*norm)(const float* x, const float* weight, int width, float eps, float* out);
    // Queries and keys of one row, as they come from their linear layer, in place.
    void (*rotate)(const Rotation& rotation, float* row, int64_t position);
    // From floats to bfloat16 and back; `count` is a multiple of 8.
    void (*narrow)(const float* x, int count, uint16_t* out);
    void (*widen)(const uint16_t* x, int count, float* out);
};

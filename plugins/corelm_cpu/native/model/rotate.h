// Rotary positions (arXiv:2104.09864) of queries and keys.
#pragma once
#include "model/kernels.h"
#include "model/norm.h"

namespace {

inline void rotate_pairs(float* head, const float* cos, const float* sin, int pairs) {
    int i = 0;
    for (; i + LANES <= pairs; i += LANES) {
        const Floats a = load(head + i), b = load(head + pairs + i), c = load(cos + i), s = load(sin + i);
        store(head + i, sub(mul(a, c), mul(b, s)));
        store(head + pairs + i, fma(a, s, mul(b, c)));
    }
    for (; i < pairs; i++) {
        const float a = head[i], b = head[pairs + i];
        head[i] = a * cos[i] - b * sin[i];
        head[pairs + i] = a * sin[i] + b * cos[i];
    }
}

void rotate(const Rotation& rotation, float* row, int64_t position) {
    const int d = rotation.head_dim, heads = rotation.heads + rotation.kv_heads;
    const float *cos = rotation.cos + position * rotation.pairs, *sin = rotation.sin + position * rotation.pairs;
    for (int head = 0; head < heads; head++) {
        float* x = row + size_t(head) * d;
        const float* weight = head < rotation.heads ? rotation.q_norm : rotation.k_norm;
        if (weight) norm(x, weight, d, rotation.eps, x);
        rotate_pairs(x, cos, sin, rotation.pairs);
    }
}

}  // namespace

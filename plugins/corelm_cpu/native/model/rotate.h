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

// `count` is a multiple of 8.
inline void narrow(const float* x, int count, uint16_t* out) {
    int i = 0;
    for (; i + LANES <= count; i += LANES) store_bfloat16(out + i, load(x + i));
    if (i < count) {
        float rest[LANES] = {};
        for (int j = i; j < count; j++) rest[j - i] = x[j];
        store_half(out + i, load(rest));
    }
}

void rotate(const Rotation& rotation, float* row, int64_t position, uint16_t* q, uint16_t* k, uint16_t* v) {
    const int d = rotation.head_dim, heads = rotation.heads + rotation.kv_heads;
    const float *cos = rotation.cos + position * rotation.pairs, *sin = rotation.sin + position * rotation.pairs;
    for (int head = 0; head < heads; head++) {
        float* x = row + size_t(head) * d;
        const float* weight = head < rotation.heads ? rotation.q_norm : rotation.k_norm;
        if (weight) norm(x, weight, d, rotation.eps, x);
        rotate_pairs(x, cos, sin, rotation.pairs);
    }
    narrow(row, rotation.heads * d, q);
    narrow(row + size_t(rotation.heads) * d, rotation.kv_heads * d, k);
    narrow(row + size_t(heads) * d, rotation.kv_heads * d, v);
}

void widen(const uint16_t* x, int count, float* out) {
    for (int i = 0; i < count; i++) {
        const uint32_t bits = uint32_t(x[i]) << 16;
        __builtin_memcpy(out + i, &bits, sizeof bits);
    }
}

}  // namespace

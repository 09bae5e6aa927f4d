// Runs attention of one level against a plain computation in double precision; for sanitizers (see sanitize.py).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <random>
#include <vector>

#include "attention/attention.h"
#include "levels.h"
#include "openmp.h"

namespace {

std::mt19937 random_bits(1);

float widened(uint16_t x) {
    const uint32_t bits = uint32_t(x) << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

std::vector<uint16_t> draw(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<uint16_t> result(count);
    for (uint16_t& x : result) {
        const float y = normal(random_bits);
        uint32_t bits;
        memcpy(&bits, &y, sizeof bits);
        x = uint16_t(bits >> 16);
    }
    return result;
}

// One sequence: `start` tokens written before, then `length` queries. Returns the largest error.
double check(const Kernels& kernels, const Shape& shape, int64_t start, int64_t length, int64_t window, int threads) {
    const int64_t end = start + length, blocks = (end + shape.block_size - 1) / shape.block_size, d = shape.head_dim;
    const auto k = draw(end * shape.kv_heads * d), v = draw(end * shape.kv_heads * d);
    const auto q = draw(length * shape.heads * d);
    std::vector<uint8_t> cache(blocks * shape.block() + PADDING, 255);  // NaNs
    std::vector<uint16_t> output(q.size());
    std::vector<int64_t> table(blocks), slots(end);
    for (int64_t b = 0; b < blocks; b++) table[b] = blocks - 1 - b;
    for (int64_t i = 0; i < end; i++) slots[i] = table[i / shape.block_size] * shape.block_size + i % shape.block_size;
    OpenMPThreads team(threads);
    Attention attention(kernels.attention, shape, team);
    const size_t before = start * shape.kv_heads * d;
    attention.write(cache.data(), start, slots.data(), k.data(), v.data());
    attention.write(cache.data(), length, slots.data() + start, k.data() + before, v.data() + before);
    attention.attend(cache.data(), Batch{1, &start, &length, table.data(), blocks}, window, q.data(), output.data());
    double worst = 0;
    for (int64_t row = 0; row < length * shape.heads; row++) {
        const int64_t position = start + row / shape.heads, head = row % shape.heads / shape.group();
        std::vector<double> sums(d);
        double total = 0;
        for (int64_t t = std::max<int64_t>(position - window + 1, 0); t <= position; t++) {
            const size_t at = (t * shape.kv_heads + head) * d;
            double score = 0;
            for (int i = 0; i < d; i++) score += double(widened(q[row * d + i])) * widened(k[at + i]);
            const double weight = exp(score / sqrt(double(d)));
            total += weight;
            for (int i = 0; i < d; i++) sums[i] += weight * widened(v[at + i]);
        }
        for (int i = 0; i < d; i++) {
            const double error = fabs(sums[i] / total - widened(output[row * d + i]));
            if (!(error <= worst)) worst = error;
        }
    }
    return worst;
}

}  // namespace

int main(int, char** arguments) {
    const Kernels* kernels = find_kernels(arguments[1]);
    if (!kernels) return printf("%s: this machine cannot run it\n", arguments[1]), 0;
    int failures = 0, cases = 0;
    for (const CacheKind kind : {CacheKind::BF16, CacheKind::INT8})
        for (const Shape shape : {Shape{3, 1, 8, 1, kind}, Shape{2, 2, 24, 5, kind}, Shape{9, 3, 64, 16, kind},
                                  Shape{8, 1, 80, 16, kind}, Shape{4, 2, 128, 32, kind}, Shape{40, 1, 32, 16, kind}})
            for (const int64_t start : {0, 1, 15, 16, 270})
                for (const int64_t length : {1, 2, 33})
                    for (const int64_t window : {int64_t(7), int64_t(1) << 62}) {
                        const double error = check(*kernels, shape, start, length, window, 1 + cases++ % 3);
                        if (error < (shape.coded() ? 0.1 : 0.03)) continue;
                        failures++;
                        printf("%s: %s, head_dim %d, block %d, start %d, length %d: error %g\n", kernels->name,
                               shape.coded() ? "int8" : "bf16", shape.head_dim, shape.block_size, int(start),
                               int(length), error);
                    }
    printf("%s: %d cases, %d failures\n", kernels->name, cases, failures);
    return failures != 0;
}

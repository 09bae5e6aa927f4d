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

// Random numbers as attention takes them, and what they are.
struct Numbers {
    std::vector<uint8_t> data;
    std::vector<double> values;

    Numbers(const Shape& shape, size_t heads) : values(heads * shape.head_dim) {
        const size_t bytes = number_bytes(shape.kind);
        data.resize(values.size() * bytes);
        std::normal_distribution<float> normal;
        for (size_t i = 0; i < values.size(); i++) {
            const float x = normal(random_bits);
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            const uint16_t upper = uint16_t(bits >> 16);
            memcpy(&data[i * bytes], shape.exact() ? static_cast<const void*>(&x) : &upper, bytes);
            values[i] = shape.exact() ? x : widened(upper);
        }
    }
};

double number(const Shape& shape, const std::vector<uint8_t>& data, size_t i) {
    float x;
    uint16_t upper;
    memcpy(&x, &data[i * number_bytes(shape.kind)], shape.exact() ? 4 : 2);
    memcpy(&upper, &x, sizeof upper);
    return shape.exact() ? x : widened(upper);
}

// One sequence: `start` tokens written before, then `length` queries. Returns the largest error.
double check(const Kernels& kernels, const Shape& shape, int64_t start, int64_t length, int64_t window, int threads) {
    const int64_t end = start + length, blocks = (end + shape.block_size - 1) / shape.block_size, d = shape.head_dim;
    const Numbers k(shape, end * shape.kv_heads), v(shape, end * shape.kv_heads), q(shape, length * shape.heads);
    std::vector<uint8_t> cache(blocks * shape.block() + PADDING, 255);  // NaNs
    std::vector<uint8_t> output(q.data.size());
    std::vector<int64_t> table(blocks), slots(end);
    for (int64_t b = 0; b < blocks; b++) table[b] = blocks - 1 - b;
    for (int64_t i = 0; i < end; i++) slots[i] = table[i / shape.block_size] * shape.block_size + i % shape.block_size;
    OpenMPThreads team(threads);
    Attention attention(kernels.attention, shape, team);
    const size_t before = start * shape.kv_heads * d * number_bytes(shape.kind);
    attention.write(cache.data(), start, slots.data(), k.data.data(), v.data.data());
    attention.write(cache.data(), length, slots.data() + start, k.data.data() + before, v.data.data() + before);
    const Batch batch{1, &start, &length, table.data(), blocks};
    attention.attend(cache.data(), batch, window, q.data.data(), output.data());
    double worst = 0;
    for (int64_t row = 0; row < length * shape.heads; row++) {
        const int64_t position = start + row / shape.heads, head = row % shape.heads / shape.group();
        std::vector<double> sums(d);
        double total = 0;
        for (int64_t t = std::max<int64_t>(position - window + 1, 0); t <= position; t++) {
            const size_t at = (t * shape.kv_heads + head) * d;
            double score = 0;
            for (int i = 0; i < d; i++) score += q.values[row * d + i] * k.values[at + i];
            const double weight = exp(score / sqrt(double(d)));
            total += weight;
            for (int i = 0; i < d; i++) sums[i] += weight * v.values[at + i];
        }
        for (int i = 0; i < d; i++) {
            const double error = fabs(sums[i] / total - number(shape, output, row * d + i));
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
    const double bounds[] = {0.03, 0.1, 1e-5};
    const char* const names[] = {"bf16", "int8", "f32"};
    for (const CacheKind kind : {CacheKind::BF16, CacheKind::INT8, CacheKind::F32})
        for (const Shape shape : {Shape{3, 1, 8, 1, kind}, Shape{2, 2, 24, 5, kind}, Shape{9, 3, 64, 16, kind},
                                  Shape{8, 1, 80, 16, kind}, Shape{4, 2, 128, 32, kind}, Shape{40, 1, 32, 16, kind}})
            for (const int64_t start : {0, 1, 15, 16, 270})
                for (const int64_t length : {1, 2, 33})
                    for (const int64_t window : {int64_t(7), int64_t(1) << 62}) {
                        const double error = check(*kernels, shape, start, length, window, 1 + cases++ % 3);
                        if (error < bounds[int(kind)]) continue;
                        failures++;
                        printf("%s: %s, head_dim %d, block %d, start %d, length %d: error %g\n", kernels->name,
                               names[int(kind)], shape.head_dim, shape.block_size, int(start), int(length), error);
                    }
    printf("%s: %d cases, %d failures\n", kernels->name, cases, failures);
    return failures != 0;
}

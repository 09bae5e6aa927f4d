// Runs linear layers of one level against double precision, and a whole model in two ways; for sanitizers (see
// sanitize.py).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "levels.h"
#include "linear/half.h"
#include "model/model.h"
#include "pool.h"

namespace {

std::mt19937 random_bits(1);

template <class Number>
std::vector<Number> draw(size_t count, float size = 1) {
    std::normal_distribution<float> normal(0, size);
    std::vector<Number> result(count);
    for (Number& x : result) x = Number(normal(random_bits));
    return result;
}

// A random matrix, whose memory ends where it ends.
struct Weights {
    std::vector<uint8_t> data;
    std::vector<float> bias;
    Matrix matrix;

    Weights(Kind kind, int outputs, int inputs, bool with_bias)
        : data(tiles_of(outputs) * tile_bytes(kind, inputs)), bias(draw<float>(tiles_of(outputs) * OUTPUTS)) {
        matrix = {kind, outputs, inputs, data.data(), with_bias ? bias.data() : nullptr};
        if (is_coded(kind))
            draw_codes(kind, inputs);
        else
            draw_numbers(kind, inputs);
    }

    void draw_numbers(Kind kind, int inputs) {
        const size_t bytes = activation_bytes(kind);
        for (size_t i = 0; i < data.size(); i += bytes) {
            const float x = draw<float>(1, 1 / sqrtf(float(inputs)))[0];
            const uint16_t half = bfloat16_of_float(x);
            memcpy(&data[i], kind == BF16 ? static_cast<const void*>(&half) : &x, bytes);
        }
    }

    void draw_codes(Kind kind, int inputs) {
        for (uint8_t& byte : data) byte = uint8_t(random_bits());
        const float scale = 1 / ((kind == Q8_0 ? 74.f : 4.6f) * sqrtf(float(inputs)));
        for (size_t group = 0; group < data.size(); group += group_bytes(kind))
            for (size_t i = 0; i < SCALE_BYTES[kind]; i += 2) {
                const uint16_t half = half_of_float(i < 2 * OUTPUTS ? scale : -8 * scale);
                memcpy(&data[group + i], &half, 2);
            }
    }

    double number(int output, int input) const {
        const uint8_t* group = data.data() + output / OUTPUTS * tile_bytes(matrix.kind, matrix.inputs) +
                               input / INPUTS * group_bytes(matrix.kind);
        const int lane = output % OUTPUTS, i = input % INPUTS;
        const auto bits = [&](int at) {
            uint16_t x;
            memcpy(&x, group + 2 * at, 2);
            return x;
        };
        const auto half = [&](int at) { return double(float_of_half(bits(at))); };
        if (matrix.kind == BF16) return float_of_bfloat16(bits((i / 2 * OUTPUTS + lane) * 2 + i % 2));
        if (matrix.kind == F32) {
            float x;
            memcpy(&x, group + 4 * (i * OUTPUTS + lane), 4);
            return x;
        }
        const uint8_t* codes = group + SCALE_BYTES[matrix.kind] + 4 * lane;
        if (matrix.kind == Q8_0) return half(lane) * (codes[i / 4 * 4 * OUTPUTS + i % 4] - 128);
        const int code = codes[i / 8 * 4 * OUTPUTS + i % 4] >> (i % 8 < 4 ? 0 : 4) & 15;
        return matrix.kind == Q4_0 ? half(lane) * (code - 8) : half(lane) * code + half(OUTPUTS + lane);
    }
};

// The largest error of products, as a share of what the sum of absolute values allows; infinite if the wrong place is
// said to be the best, or a row that is no number does not show.
double check_products(const Kernels& kernels, Kind kind, int outputs, int inputs, int rows, int threads) {
    const Weights weights(kind, outputs, inputs, rows % 2);
    const Matrix& matrix = weights.matrix;
    const int width = groups_of(inputs) * INPUTS;
    auto x = draw<float>(size_t(rows) * width);
    for (int row = 0; row < rows; row++) std::fill(&x[row * width] + inputs, &x[row * width] + width, 0.f);
    for (int i = 0; i < inputs && rows > 1; i++) x[width + i] *= 1e-40f;
    if (rows > 2) x[2 * width] = NAN;
    if (rows > 3) x[3 * width + inputs - 1] = -INFINITY;
    Pool pool(threads);
    ActivationBuffer buffer(kernels.linear, rows, inputs, activation_bytes(kind));
    const Activations activations = buffer.view(matrix, rows);
    for (int row = 0; row < rows; row++) kernels.linear.quantise(&x[row * width], row, activations);
    Linear linear(kernels.linear, pool, inputs);
    std::vector<float> out(size_t(rows) * outputs, 1), logits(out);
    linear.multiply(matrix, activations, rows,
                    {Target::ADD, out.data(), size_t(outputs), outputs, matrix.bias, nullptr, nullptr, nullptr});
    std::vector<int64_t> best(rows, -2);
    std::vector<float*> places(rows);
    for (int row = 0; row < rows; row += 2) places[row] = &logits[row * outputs];
    linear.find_best(matrix, activations, rows, places.data(), best.data());
    std::vector<double> numbers;
    for (int i = 0; i < outputs * inputs; i++) numbers.push_back(weights.number(i / inputs, i % inputs));
    double worst = 0;
    for (int row = 0; row < rows; row++) {
        const float* const found = &out[row * outputs];
        if (row == 2 || row == 3) {
            if (best[row] != -1) return INFINITY;
            if (std::any_of(found, found + outputs, [](float y) { return y - y == 0; })) return INFINITY;
            continue;
        }
        const float* const own = places[row];
        if (own && std::max_element(own, own + outputs) - own != best[row]) return INFINITY;
        for (int output = 0; output < outputs; output++) {
            double expected = 1 + (matrix.bias ? matrix.bias[output] : 0), allowed = fabs(expected);
            for (int i = 0; i < inputs; i++) {
                const double product = numbers[output * inputs + i] * x[row * width + i];
                expected += product;
                allowed += fabs(product);
            }
            worst = std::max(worst, fabs(expected - found[output]) / allowed);
        }
    }
    return worst;
}

// Everything that a random model consists of.
struct RandomModel {
    static constexpr int LAYERS = 2, HIDDEN = 72, HEADS = 6, KV_HEADS = 2, HEAD_DIM = 24, INNER = 100, VOCABULARY = 70;
    static constexpr int PAIRS = 12, BLOCK_SIZE = 5, TOKENS = 60, QKV = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
    std::deque<Weights> weights;
    std::vector<std::vector<uint8_t>> caches;
    std::vector<float> norm, cos, sin;
    std::vector<Layer> layers;
    ModelView view;

    RandomModel(Kind kind, CacheKind kv, bool more)
        : norm(HIDDEN, 1), cos(TOKENS * PAIRS), sin(TOKENS * PAIRS) {
        for (size_t i = 0; i < cos.size(); i++) {
            cos[i] = cosf(float(i));
            sin[i] = sinf(float(i));
        }
        const auto matrix = [&](int outputs, int inputs) {
            return weights.emplace_back(kind, outputs, inputs, more).matrix;
        };
        const int gate_up = (INNER + 15) / 16 * 32;
        const size_t bytes = TOKENS / BLOCK_SIZE * Shape{HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE, kv}.block();
        for (int i = 0; i < LAYERS; i++) {
            caches.emplace_back(bytes + PADDING, 255);  // NaNs
            const float* const of_heads = more ? norm.data() : nullptr;
            layers.push_back({matrix(QKV, HIDDEN), matrix(HIDDEN, HEADS * HEAD_DIM), matrix(gate_up, HIDDEN),
                              matrix(HIDDEN, INNER), norm.data(), norm.data(), of_heads, of_heads,
                              i ? int64_t(7) : int64_t(1) << 62, caches.back().data()});
        }
        const Weights& head = weights.emplace_back(is_coded(kind) ? Q8_0 : kind, VOCABULARY, HIDDEN, false);
        view = {LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, PAIRS, BLOCK_SIZE, kv, 1e-5f, layers.data(),
                head.matrix, head.matrix, norm.data(), cos.data(), sin.data()};
    }

    // Logits of all tokens of a sequence, computed `chunk` tokens at a time.
    std::vector<float> run(const Kernels& kernels, int threads, int chunk) {
        Model model(kernels, view, threads);
        std::vector<float> logits(TOKENS * VOCABULARY);
        std::vector<int64_t> numbers(TOKENS), tokens(TOKENS), table(TOKENS / BLOCK_SIZE), slots(TOKENS);
        for (int i = 0; i < TOKENS; i++) {
            numbers[i] = i;
            tokens[i] = i * 37 % VOCABULARY;
            table[i / BLOCK_SIZE] = TOKENS / BLOCK_SIZE - 1 - i / BLOCK_SIZE;
            slots[i] = table[i / BLOCK_SIZE] * BLOCK_SIZE + i % BLOCK_SIZE;
        }
        for (int64_t start = 0; start < TOKENS; start += chunk) {
            const int64_t count = std::min<int64_t>(chunk, TOKENS - start);
            std::vector<int64_t> best(count);
            std::vector<float> hidden(count * HIDDEN, NAN);
            const Batch batch{1, &start, &count, table.data(), int64_t(table.size())};
            float* const own = &logits[start * VOCABULARY];
            model.step({count, &tokens[start], &numbers[start], &slots[start], batch, count, numbers.data(), count,
                        best.data(), count, numbers.data(), own, count, numbers.data(), hidden.data()});
            for (const float x : hidden)
                if (x != x) *own = NAN;
            std::vector<float> again(count * VOCABULARY);
            model.score(0, count, again.data());
            if (memcmp(again.data(), own, again.size() * sizeof(float))) *own = NAN;
        }
        return logits;
    }
};

// The relative difference of a model's logits when it is run in one go and in chunks.
double check_model(const Kernels& kernels, Kind kind, CacheKind kv, bool more, int threads) {
    RandomModel model(kind, kv, more);
    const auto whole = model.run(kernels, threads, RandomModel::TOKENS), chunks = model.run(kernels, 1, 7);
    double difference = 0, size = 0;
    for (size_t i = 0; i < whole.size(); i++) {
        difference += pow(double(whole[i]) - chunks[i], 2);
        size += pow(double(whole[i]), 2);
    }
    return sqrt(difference / size);
}

}  // namespace

int main(int, char** arguments) {
    const Kernels* kernels = find_kernels(arguments[1]);
    if (!kernels) return printf("%s: this machine cannot run it\n", arguments[1]), 0;
    int failures = 0, cases = 0;
    const auto expect = [&](double error, double bound, const char* what, int kind) {
        cases++;
        if (error < bound) return;
        failures++;
        printf("%s: %s, kind %d: error %g\n", kernels->name, what, kind, error);
    };
    for (const Kind kind : {Q8_0, Q4_0, Q4_1, BF16, F32}) {
        for (const int outputs : {1, 32, 70})
            for (const int inputs : {1, 32, 100, 600})
                for (const int rows : {1, 2, 3, 6, 7, 16, 17, 33, 130}) {
                    const double error = check_products(*kernels, kind, outputs, inputs, rows, 1 + cases % 3);
                    expect(error, kind == F32 ? 3e-6 : 0.02, "products", kind);
                }
        for (const CacheKind kv : {CacheKind::BF16, CacheKind::INT8, CacheKind::F32})
            for (const bool more : {false, true}) {
                const bool exact = kind == F32 && kv == CacheKind::F32;
                expect(check_model(*kernels, kind, kv, more, 3), exact ? 1e-30 : 0.1, "model", kind);
            }
    }
    printf("%s: %d cases of linear layers and models, %d failures\n", kernels->name, cases, failures);
    return failures != 0;
}

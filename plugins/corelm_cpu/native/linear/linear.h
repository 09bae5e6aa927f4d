// Linear layers for one engine: shares the tiles of a matrix among threads.
#pragma once
#include <vector>

#include "buffer.h"
#include "linear/kernels.h"
#include "threads.h"

struct Matrix {
    Kind kind;
    int outputs, inputs;
    const uint8_t* tiles;
    const float* bias;  // [outputs, rounded up to whole tiles], or null
};

// Activations of up to `rows` rows, and where they lie.
class ActivationBuffer {
   public:
    // A number takes up to `number_bytes` (see activation_bytes).
    ActivationBuffer(const LinearKernels& kernels, int rows, int inputs, size_t number_bytes);
    // For `rows` of them to be multiplied with `matrix`.
    Activations view(const Matrix& matrix, int rows);

   private:
    const LinearKernels& kernels_;
    Buffer<uint8_t> codes_;
    Buffer<float> scales_;
    Buffer<int32_t> sums_;
};

class Linear {
   public:
    Linear(const LinearKernels& kernels, Threads& threads, int most_inputs);

    // Products of `rows` rows with all outputs of `matrix`.
    void multiply(const Matrix& matrix, const Activations& x, int rows, const Target& target);
    // The place of the largest product of each row, to `best` [rows]; -1 where a NaN or an infinite one is among them. Rows
    // with a place in `logits` [rows] are stored there.
    void find_best(const Matrix& matrix, const Activations& x, int rows, float* const* logits, int64_t* best);

   private:
    struct Scratch {
        Buffer<float> products;
        Buffer<uint8_t> tile;  // unpacked or widened
    };
    int parts(int tiles) const;
    void multiply_tiles(const Matrix& matrix, const Activations& x, int rows, const Target& target, int part, int parts);

    const LinearKernels& kernels_;
    Threads& threads_;
    std::vector<Scratch> scratch_;  // by part
    Buffer<float> best_;
    std::vector<int64_t> best_at_;
};

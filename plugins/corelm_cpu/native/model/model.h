// A decoder of the Llama family with paged attention: a step is one call.
#pragma once
#include <memory>
#include <vector>

#include "attention/attention.h"
#include "level.h"
#include "linear/linear.h"
#include "threads.h"

struct Layer {
    Matrix qkv, o, gate_up, down;
    const float *input_norm, *post_norm;
    const float *q_norm, *k_norm;  // or null
    int64_t window;                // tokens that a query sees, itself included
    void* cache;
};

// Everything that is pointed at outlives the model.
struct ModelView {
    int layers, hidden, heads, kv_heads, head_dim, intermediate, pairs, block_size;
    CacheKind kv;
    float eps;
    const Layer* layer;  // [layers]
    Matrix embedding, head;
    const float* norm;
    const float *cos, *sin;  // [positions][pairs]
};

// M tokens in slices, and the R rows of them that are sampled, followed by others whose hidden states are kept.
struct Step {
    int64_t tokens;
    const int64_t *token_ids, *positions, *slots;  // [M]
    Batch batch;
    int64_t outputs;
    const int64_t* output_rows;  // [outputs]
    int64_t sampled;             // R
    int64_t* best;               // [R]: most probable tokens, -1 where logits are no finite numbers
    int64_t detailed;
    const int64_t* detailed_rows;  // [detailed]: which of the R rows' logits are wanted
    float* logits;                 // [detailed][vocabulary]
    int64_t pooled;
    const int64_t* pooled_rows;  // [pooled]: rows whose final hidden states are wanted for themselves
    float* hidden;               // [pooled][hidden size]: these, after the last norm
};

class Model {
   public:
    Model(const Kernels& kernels, const ModelView& view, int threads);

    void step(const Step& step);
    // Logits of `count` outputs of the last step from number `first` on.
    void score(int64_t first, int64_t count, float* logits);

   private:
    void reserve(int tokens);
    void run_layer(const Layer& layer, const Step& step);
    void attend(const Layer& layer, const Step& step);
    void head(int64_t first, int64_t count, float* const* logits, int64_t* best);
    template <class Work>
    void each_row(int64_t rows, Work work);
    void quantise_normed(const float* weight, const Matrix& matrix, int rows);
    void rotate(const Layer& layer, const Step& step);
    void to_attention(const float* x, int count, int64_t row, Buffer<uint8_t>& to);

    const Kernels& kernels_;
    const std::unique_ptr<Threads> threads_;
    const ModelView view_;
    const int hidden_, attended_, inner_;  // widths, rounded up to whole groups
    const size_t number_;                  // bytes, of attention's queries, keys, values and results
    Attention attention_;
    Linear linear_;
    std::vector<ActivationBuffer> activations_;         // one, made for the largest step so far
    int capacity_ = 0;                                  // tokens
    Buffer<float> x_, qkv_, inner_rows_, output_;  // [M][hidden_], [M][outputs of qkv], [M][inner_], [R][hidden_]
    Buffer<uint8_t> q_, k_, v_, attended_rows_;
    std::vector<Buffer<float>> scratch_;  // by part: a row
    std::vector<int64_t> best_;
};

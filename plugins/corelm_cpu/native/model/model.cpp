#include "model/model.h"

#include <string.h>

#include <algorithm>

#include "pool.h"

namespace {

constexpr int FEW_ROWS = 2;  // so few that handing them out takes longer than the work
constexpr int PARTS = 2;     // for each thread

int whole_groups(int inputs) { return groups_of(inputs) * INPUTS; }

// That a number takes at most among the activations of any matrix.
size_t most_activation_bytes(const ModelView& view) {
    size_t most = activation_bytes(view.head.kind);
    for (int i = 0; i < view.layers; i++)
        for (const Matrix& matrix : {view.layer[i].qkv, view.layer[i].o, view.layer[i].gate_up, view.layer[i].down})
            most = std::max(most, activation_bytes(matrix.kind));
    return most;
}

Shape shape_of(const ModelView& view) { return Shape{view.heads, view.kv_heads, view.head_dim, view.block_size, view.kv}; }

}  // namespace

Model::Model(const Kernels& kernels, const ModelView& view, int threads)
    : kernels_(kernels),
      threads_(new Pool(threads)),
      view_(view),
      hidden_(whole_groups(view.hidden)),
      attended_(whole_groups(view.heads * view.head_dim)),
      inner_(whole_groups(view.intermediate)),
      number_(number_bytes(view.kv)),
      attention_(kernels.attention, shape_of(view), *threads_),
      linear_(kernels.linear, *threads_, std::max({hidden_, attended_, inner_})),
      scratch_(threads * PARTS) {
    for (auto& row : scratch_) row.resize(std::max(hidden_, attended_));
}

void Model::reserve(int tokens) {
    if (tokens <= capacity_) return;
    capacity_ = 0;  // until all of it is there: memory may run out half way
    const size_t rows = size_t(tokens), d = size_t(view_.head_dim);
    activations_.clear();
    activations_.emplace_back(kernels_.linear, tokens, std::max({hidden_, attended_, inner_}),
                              most_activation_bytes(view_));
    x_.assign(rows * hidden_, 0);
    qkv_.resize(rows * (view_.heads + 2 * view_.kv_heads) * d);
    inner_rows_.assign(rows * inner_, 0);
    output_.assign(rows * hidden_, 0);
    q_.resize(rows * view_.heads * d * number_);
    k_.resize(rows * view_.kv_heads * d * number_);
    v_.resize(k_.size());
    attended_rows_.resize(q_.size());
    capacity_ = tokens;
}

// Call `work(row, scratch)` for every row.
template <class Work>
void Model::each_row(int64_t rows, Work work) {
    const int parts = rows <= FEW_ROWS ? 1 : int(std::min<int64_t>(rows, int64_t(scratch_.size())));
    threads_->each(parts, [&](int part) {
        for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; row++) work(row, scratch_[part].data());
    });
}

void Model::step(const Step& step) {
    reserve(int(std::max(step.tokens, step.outputs)));
    const Matrix& embedding = view_.embedding;
    const size_t tile = tile_bytes(embedding.kind, embedding.inputs);
    each_row(step.tokens, [&](int64_t row, float*) {
        const int64_t token = step.token_ids[row];
        kernels_.linear.weights_of(embedding.kind, embedding.tiles + size_t(token / OUTPUTS) * tile, groups_of(embedding.inputs),
                                   int(token % OUTPUTS), &x_[row * hidden_]);
    });
    for (int i = 0; i < view_.layers; i++) run_layer(view_.layer[i], step);
    each_row(step.outputs, [&](int64_t row, float*) {
        kernels_.model.norm(&x_[step.output_rows[row] * hidden_], view_.norm, view_.hidden, view_.eps,
                            &output_[row * hidden_]);
    });
    each_row(step.pooled, [&](int64_t row, float*) {
        kernels_.model.norm(&x_[step.pooled_rows[row] * hidden_], view_.norm, view_.hidden, view_.eps,
                            step.hidden + row * view_.hidden);
    });
    std::vector<float*> logits(step.sampled);
    for (int64_t i = 0; i < step.detailed; i++)
        logits[step.detailed_rows[i]] = step.logits + i * view_.head.outputs;
    head(0, step.sampled, logits.data(), step.best);
}

void Model::score(int64_t first, int64_t count, float* logits) {
    std::vector<float*> rows(count);
    for (int64_t i = 0; i < count; i++) rows[i] = logits + i * view_.head.outputs;
    best_.resize(count);
    head(first, count, rows.data(), best_.data());
}

void Model::head(int64_t first, int64_t count, float* const* logits, int64_t* best) {
    const Activations quantised = activations_[0].view(view_.head, int(count));
    each_row(count, [&](int64_t row, float*) {
        kernels_.linear.quantise(&output_[(first + row) * hidden_], int(row), quantised);
    });
    linear_.find_best(view_.head, quantised, int(count), logits, best);
}

void Model::quantise_normed(const float* weight, const Matrix& matrix, int rows) {
    const Activations quantised = activations_[0].view(matrix, rows);
    each_row(rows, [&](int64_t row, float* scratch) {
        std::fill(scratch + view_.hidden, scratch + hidden_, 0.f);
        kernels_.model.norm(&x_[row * hidden_], weight, view_.hidden, view_.eps, scratch);
        kernels_.linear.quantise(scratch, int(row), quantised);
    });
}

void Model::run_layer(const Layer& layer, const Step& step) {
    const int rows = int(step.tokens);
    ActivationBuffer& activations = activations_[0];
    const auto add_to_x = [&](const Matrix& matrix) {
        const Target x{Target::ADD, x_.data(), size_t(hidden_), matrix.outputs, matrix.bias, nullptr, nullptr, nullptr};
        linear_.multiply(matrix, activations.view(matrix, rows), rows, x);
    };
    quantise_normed(layer.input_norm, layer.qkv, rows);
    const Target qkv{Target::STORE, qkv_.data(), size_t(layer.qkv.outputs), layer.qkv.outputs, layer.qkv.bias,
                     nullptr,       nullptr,     nullptr};
    linear_.multiply(layer.qkv, activations.view(layer.qkv, rows), rows, qkv);
    attend(layer, step);
    add_to_x(layer.o);
    quantise_normed(layer.post_norm, layer.gate_up, rows);
    const Target inner{Target::SILU_MUL, inner_rows_.data(), size_t(inner_), layer.gate_up.outputs, layer.gate_up.bias,
                       nullptr,          nullptr,            nullptr};
    linear_.multiply(layer.gate_up, activations.view(layer.gate_up, rows), rows, inner);
    const Activations quantised = activations.view(layer.down, rows);
    each_row(rows, [&](int64_t row, float*) {
        kernels_.linear.quantise(&inner_rows_[row * inner_], int(row), quantised);
    });
    add_to_x(layer.down);
}

// One row of `count` numbers as attention takes them.
void Model::to_attention(const float* x, int count, int64_t row, Buffer<uint8_t>& to) {
    uint8_t* const at = &to[row * count * number_];
    if (view_.kv == CacheKind::F32)
        memcpy(at, x, count * number_);
    else
        kernels_.model.narrow(x, count, reinterpret_cast<uint16_t*>(at));
}

// From the outputs of `layer.qkv` to queries, keys and values.
void Model::rotate(const Layer& layer, const Step& step) {
    const int d = view_.head_dim, width = view_.heads * d, kv_width = view_.kv_heads * d;
    const Rotation rotation{view_.heads,  view_.kv_heads, d,           view_.pairs, view_.cos,
                            view_.sin,    layer.q_norm,   layer.k_norm, view_.eps};
    each_row(step.tokens, [&](int64_t row, float*) {
        float* const qkv = &qkv_[row * layer.qkv.outputs];
        kernels_.model.rotate(rotation, qkv, step.positions[row]);
        to_attention(qkv, width, row, q_);
        to_attention(qkv + width, kv_width, row, k_);
        to_attention(qkv + width + kv_width, kv_width, row, v_);
    });
}

// From queries, keys and values to the activations of the output projection.
void Model::attend(const Layer& layer, const Step& step) {
    const int width = view_.heads * view_.head_dim;
    rotate(layer, step);
    attention_.write(layer.cache, step.tokens, step.slots, k_.data(), v_.data());
    attention_.attend(layer.cache, step.batch, layer.window, q_.data(), attended_rows_.data());
    const Activations quantised = activations_[0].view(layer.o, int(step.tokens));
    each_row(step.tokens, [&](int64_t row, float* scratch) {
        const uint8_t* const attended = &attended_rows_[row * width * number_];
        std::fill(scratch + width, scratch + attended_, 0.f);
        if (view_.kv == CacheKind::F32)
            memcpy(scratch, attended, width * number_);
        else
            kernels_.model.widen(reinterpret_cast<const uint16_t*>(attended), width, scratch);
        kernels_.linear.quantise(scratch, int(row), quantised);
    });
}

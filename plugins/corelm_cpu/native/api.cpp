// What Python calls, through ctypes (corelm_cpu/kernels.py).
#include <exception>
#include <new>

#include "attention/attention.h"
#include "levels.h"
#include "linear/pack.h"
#include "memory.h"
#include "model/model.h"
#include "openmp.h"
#include "pool.h"

#define API extern "C" __attribute__((visibility("default")))

// Attention alone, for use between operations of PyTorch.
struct LoneAttention {
    OpenMPThreads threads;
    Attention attention;

    LoneAttention(const Kernels& kernels, const Shape& shape, int threads)
        : threads(threads), attention(kernels.attention, shape, this->threads) {}
};

// The name of the best kernels for this machine, or of those called `name`; null if it cannot run them.
API const char* corelm_kernels(const char* name) {
    const Kernels* kernels = find_kernels(name);
    return kernels ? kernels->name : nullptr;
}

// Bytes of a block of one layer's cache.
API int64_t corelm_block_bytes(int kv_heads, int head_dim, int block_size, int kind) {
    return int64_t(Shape{kv_heads, kv_heads, head_dim, block_size, CacheKind(kind)}.block());
}

API LoneAttention* corelm_attention_new(const char* name, int heads, int kv_heads, int head_dim, int block_size,
                                        int kind, int threads) {
    const Shape shape{heads, kv_heads, head_dim, block_size, CacheKind(kind)};
    return new LoneAttention(*find_kernels(name), shape, threads);
}

API void corelm_attention_delete(LoneAttention* lone) { delete lone; }

API void corelm_attention_write(LoneAttention* lone, void* cache, int64_t tokens, const int64_t* slots,
                                const uint8_t* k, const uint8_t* v) {
    lone->attention.write(cache, tokens, slots, k, v);
}

API void corelm_attention_attend(LoneAttention* lone, const void* cache, int64_t slices, const int64_t* starts,
                                 const int64_t* lengths, const int64_t* tables, int64_t width, int64_t window,
                                 const uint8_t* queries, uint8_t* output) {
    lone->attention.attend(cache, Batch{slices, starts, lengths, tables, width}, window, queries, output);
}

// Products [rows][outputs] of `x` [rows][inputs rounded up to whole groups] with `matrix`, for tests.
API void corelm_multiply(const char* name, const Matrix* matrix, const float* x, int rows, float* out, int threads) {
    const Kernels& kernels = *find_kernels(name);
    Pool pool(threads);
    ActivationBuffer buffer(kernels.linear, rows, matrix->inputs, activation_bytes(matrix->kind));
    const Activations activations = buffer.view(*matrix, rows);
    for (int row = 0; row < rows; row++)
        kernels.linear.quantise(x + size_t(row) * activations.groups * INPUTS, row, activations);
    Linear linear(kernels.linear, pool, matrix->inputs);
    linear.multiply(*matrix, activations, rows,
                    {Target::STORE, out, size_t(matrix->outputs), matrix->outputs, matrix->bias, nullptr, nullptr, nullptr});
}

// Null if there is no memory, or there are not so many threads.
API Model* corelm_model_new(const char* name, const ModelView* view, int threads) {
    try {
        return new Model(*find_kernels(name), *view, threads);
    } catch (const std::exception&) {
        return nullptr;
    }
}

API void corelm_model_delete(Model* model) { delete model; }

// False if there is no memory for so many tokens.
API bool corelm_model_step(Model* model, const Step* step) {
    try {
        model->step(*step);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

API void corelm_model_score(Model* model, int64_t first, int64_t count, float* logits) {
    model->score(first, count, logits);
}

API uint8_t* corelm_memory_new(int64_t bytes) { return new_memory(size_t(bytes)); }

API void corelm_memory_delete(uint8_t* memory, int64_t bytes) { delete_memory(memory, size_t(bytes)); }

// Bytes of a packed matrix.
API int64_t corelm_matrix_bytes(int kind, int outputs, int inputs) {
    return int64_t(tiles_of(outputs) * tile_bytes(Kind(kind), inputs));
}

API bool corelm_pack(uint8_t* matrix, int kind, int64_t first, int64_t stride, int encoding, const uint8_t* rows,
                     int64_t count, int inputs) {
    return pack(matrix, Kind(kind), Places{first, stride}, Rows{Encoding(encoding), rows, count, inputs});
}

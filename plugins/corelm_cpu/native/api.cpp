// What Python calls, through ctypes (corelm_cpu/kernels.py).
#include "attention/attention.h"
#include "levels.h"
#include "openmp.h"

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

API LoneAttention* corelm_attention_new(const char* name, int heads, int kv_heads, int head_dim, int block_size,
                                        int threads) {
    return new LoneAttention(*find_kernels(name), Shape{heads, kv_heads, head_dim, block_size}, threads);
}

API void corelm_attention_delete(LoneAttention* lone) { delete lone; }

API void corelm_attention_write(LoneAttention* lone, uint16_t* cache, int64_t tokens, const int64_t* slots,
                                const uint16_t* k, const uint16_t* v) {
    lone->attention.write(cache, tokens, slots, k, v);
}

API void corelm_attention_attend(LoneAttention* lone, const uint16_t* cache, int64_t slices, const int64_t* starts,
                                 const int64_t* lengths, const int64_t* tables, int64_t width, int64_t window,
                                 const uint16_t* queries, uint16_t* output) {
    lone->attention.attend(cache, Batch{slices, starts, lengths, tables, width}, window, queries, output);
}

// Attention over the paged cache for one engine: cuts a step into tiles, shares them among threads, joins the parts.
#pragma once
#include <vector>

#include "attention/kernels.h"
#include "buffer.h"
#include "threads.h"

class Attention {
   public:
    Attention(const AttentionKernels& kernels, const Shape& shape, Threads& threads);

    // Store keys and values [tokens][kv_heads][d] at `slots`, block * block_size + offset; a sequence's in their order.
    void write(void* cache, int64_t tokens, const int64_t* slots, const uint8_t* k, const uint8_t* v);

    // Attend with `queries` [M][heads][d]; `output` has the same shape. A query sees `window` tokens, itself included.
    void attend(const void* cache, const Batch& batch, int64_t window, const uint8_t* queries, uint8_t* output);

   private:
    struct Step;
    struct Buffers {
        Buffer<float> scores, acc, sums;
        Buffer<uint8_t> weights, expanded;
        Buffer<int8_t> queries;
        Buffer<float> value_scales, query_scales;
        Buffer<int> query_sums;
    };
    // What a thread computed of a tile that is not its alone.
    struct Part {
        Tile tile;
        bool used, goes_on;
    };
    // Where a thread keeps the state of a tile: done at once, begun by a thread before, left to threads after it.
    enum Place { WHOLE, HEAD, TAIL, PLACES };

    template <class Visit>
    void each_tile(const Step& step, Visit visit) const;
    void compute_share(const Step& step, int thread);
    void join_parts();
    State state(int thread, Place place);

    const AttentionKernels& kernels_;
    const Shape shape_;
    Threads& threads_;
    const int tile_queries_, rows_;  // rows rounded up for AMX
    const size_t scores_stride_, weights_stride_, acc_stride_;
    std::vector<Buffers> buffers_;     // by thread
    std::vector<Part> heads_, tails_;  // by thread
};

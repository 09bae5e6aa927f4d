// What each instruction set supplies to attention.
#pragma once
#include "attention/layout.h"

constexpr int TILE_ROWS = 192;     // rows of a tile, unless a single query's group has more
constexpr int CHUNK_TOKENS = 256;  // tokens whose scores are kept at a time, unless a block is longer
constexpr int MAX_LANES = 16;

static inline int chunk_blocks(const Shape& shape) {
    return shape.slots() < CHUNK_TOKENS ? CHUNK_TOKENS / shape.slots() : 1;
}

// Scratch of one thread, sized by `Attention`.
struct Scratch {
    float* scores;         // [rows][scores_stride]
    uint8_t* weights;      // [rows]: [scores_stride] floats or bfloat16s or, of a coded cache, two times so many bytes
    float* value_scales;   // [scores_stride], only for a coded cache, as what follows
    int8_t* queries;       // [rows][acc_stride]: their codes
    float* query_scales;   // [rows]: what a code stands for
    int* query_sums;       // [rows]: of the codes
    uint8_t* expanded;     // a chunk of one KV head of a coded cache, in bfloat16
    size_t scores_stride;
    size_t weights_stride;  // bytes
    size_t acc_stride;      // of every State

    float* row_scores(int row) const { return scores + row * scores_stride; }
    int8_t* row_query(int row) const { return queries + row * acc_stride; }
    uint8_t* row_weights(int row) const { return weights + row * weights_stride; }
};

struct AttentionKernels {
    // Store keys and values [tokens][kv_heads][d] of tokens at `slots`, block * block_size + offset.
    void (*write)(const Shape&, uint8_t* cache, int64_t tokens, const int64_t* slots, const uint8_t* k,
                  const uint8_t* v);
    // Attend over the tile's blocks, from nothing.
    void (*attend)(const Shape&, const Tile&, float scale, const Scratch&, const State&);
    // Add `other` to `state`.
    void (*merge)(int rows, int width, size_t stride, const State& state, const State& other);
    // Divide by the sums and write the tile's output.
    void (*finish)(const Shape&, const Tile&, size_t stride, const State&);
};

// What each instruction set supplies to attention.
#pragma once
#include "attention/layout.h"

constexpr int TILE_ROWS = 32;      // rows of a tile, unless a single query's group has more
constexpr int CHUNK_TOKENS = 256;  // tokens whose scores are kept at a time, unless a block is longer
constexpr int MAX_LANES = 16;

// Scratch of one thread, sized by `Attention`.
struct Scratch {
    float* scores;      // [rows][scores_stride]
    uint16_t* weights;  // [rows][scores_stride]
    size_t scores_stride;
    size_t acc_stride;  // of every State
};

struct AttentionKernels {
    // Store keys and values [tokens][kv_heads][d] of tokens at `slots`, block * block_size + offset.
    void (*write)(const Shape&, uint16_t* cache, int64_t tokens, const int64_t* slots, const uint16_t* k,
                  const uint16_t* v);
    // Attend over the tile's blocks, from nothing.
    void (*attend)(const Shape&, const Tile&, float scale, const Scratch&, const State&);
    // Add `other` to `state`.
    void (*merge)(int rows, int width, size_t stride, const State& state, const State& other);
    // Divide by the sums and write the tile's output.
    void (*finish)(const Shape&, const Tile&, size_t stride, const State&);
};

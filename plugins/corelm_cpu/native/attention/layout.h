// How keys and values lie in the cache, and what one attention call is given.
//
// A layer's cache is an array of blocks, a block one region per KV head, a region first keys, then values. Elements are
// bfloat16. With T slots a block (block_size rounded up to even) and d = head_dim:
//
//   keys    [d/2][T][2]   dimensions 2i and 2i+1 of each token side by side, tokens in lanes: scores of consecutive
//                         tokens are a vector, without horizontal sums
//   values  [T/2][d][2]   tokens 2j and 2j+1 side by side, dimensions in lanes: so is the weighted sum
//
// Vectors may read past the end of a row or region, and drop such lanes. So PADDING bytes follow the cache.
#pragma once
#include <stddef.h>
#include <stdint.h>

constexpr int PADDING = 64;
constexpr int AHEAD = 3;  // blocks fetched ahead: they lie scattered, which the processor cannot foresee

struct Shape {
    int heads;
    int kv_heads;
    int head_dim;  // a multiple of 8
    int block_size;

    int group() const { return heads / kv_heads; }
    int slots() const { return block_size + block_size % 2; }
    size_t values() const { return size_t(head_dim) * slots(); }  // offset of the values in a region
    size_t region() const { return 2 * values(); }
    size_t block() const { return kv_heads * region(); }
};

// A step's S slices: consecutive tokens of one sequence each, flattened to M rows.
struct Batch {
    int64_t slices;
    const int64_t* starts;   // [S]: position of the first token
    const int64_t* lengths;  // [S]: tokens
    const int64_t* tables;   // [S][width]: block ids
    int64_t width;
};

// Some queries of one slice and one KV head, over some blocks of their context.
struct Tile {
    const uint16_t* region;  // the KV head's region in block 0
    const int64_t* table;
    const uint16_t* queries;  // the first query's first head of the group
    uint16_t* output;         // the same place in the output
    int64_t position;         // of the first query
    int64_t window;           // tokens that a query sees, itself included
    int count;                // queries
    int first, last;          // blocks
};

// What a tile's rows (queries x heads of the group) have gathered so far: sum(exp2(score - max) * value).
struct State {
    float* acc;  // [rows][stride]
    float* max;  // [rows]
    float* sum;  // [rows]
};

// How keys and values lie in the cache, and what one attention call is given.
//
// A layer's cache is an array of blocks, a block one region per KV head, a region first keys, then values. With T slots
// a block and d = head_dim:
//
//   BF16   bfloat16; T is block_size rounded up to even
//     keys    [d/2][T][2]   dimensions 2i and 2i+1 of each token side by side, tokens in lanes: scores of consecutive
//                           tokens are a vector, without horizontal sums
//     values  [T/2][d][2]   tokens 2j and 2j+1 side by side, dimensions in lanes: so is the weighted sum
//
//   INT8   codes of -127 to 127 and what one stands for, by token; T is block_size rounded up to a multiple of 4
//     keys    [d/4][T][4]   bytes, code + 128: products are of unsigned by signed bytes; scales [T] floats follow
//     values  [T/4][d][4]   bytes, signed: here the weights are unsigned; scales [T] floats follow
//
//   F32    floats; T is block_size
//     keys    [d][T]
//     values  [T][d]
//
// Queries, keys, values and results are floats with F32, and bfloat16 with the others. With F32 a row's results do not
// depend on what else is computed, nor by how many threads.
//
// Vectors may read past the end of a row or region, and drop such lanes: so PADDING bytes follow the cache. It begins
// at a multiple of 4 bytes, better of 64.
#pragma once
#include <stddef.h>
#include <stdint.h>

constexpr int PADDING = 64;
constexpr int WORD = 4;  // bytes of a lane: 2 elements of BF16, 4 of INT8 or 1 of F32

enum class CacheKind : int { BF16, INT8, F32 };

// Bytes of a number in queries, keys, values and results.
static inline size_t number_bytes(CacheKind kind) { return kind == CacheKind::F32 ? sizeof(float) : sizeof(uint16_t); }

struct Shape {
    int heads;
    int kv_heads;
    int head_dim;  // a multiple of 8
    int block_size;
    CacheKind kind;

    bool coded() const { return kind == CacheKind::INT8; }
    int group() const { return heads / kv_heads; }
    bool exact() const { return kind == CacheKind::F32; }
    int element() const { return coded() ? 1 : int(number_bytes(kind)); }  // bytes, in the cache
    int slots() const {
        const int together = WORD / element();
        return (block_size + together - 1) / together * together;
    }
    size_t scales() const { return size_t(slots()) * head_dim * element(); }  // offset behind the keys or values
    size_t values() const { return scales() + (coded() ? slots() * sizeof(float) : 0); }  // offset in a region
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
    const uint8_t* region;   // the KV head's region in block 0
    size_t block_bytes;
    const int64_t* table;
    const uint8_t* queries;  // the first query's first head of the group
    uint8_t* output;         // the same place in the output
    int64_t position;         // of the first query
    int64_t window;           // tokens that a query sees, itself included
    int count;                // queries
    int first, last;          // blocks

    const uint8_t* block(int b) const { return region + table[b] * block_bytes; }
    // Row r is head r % group of query r / group.
    const uint8_t* query(const Shape& shape, int row) const { return queries + offset(shape, row); }
    uint8_t* result(const Shape& shape, int row) const { return output + offset(shape, row); }

   private:
    static size_t offset(const Shape& shape, int row) {
        const size_t head = size_t(row / shape.group()) * shape.heads + row % shape.group();
        return head * shape.head_dim * number_bytes(shape.kind);
    }
};

// What a tile's rows (queries x heads of the group) have gathered so far: sum(exp2(score - max) * value).
struct State {
    float* acc;  // [rows][stride]
    float* max;  // [rows]
    float* sum;  // [rows]
};

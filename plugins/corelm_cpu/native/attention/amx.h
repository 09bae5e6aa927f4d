// Products of tiles of up to 16 rows by Advanced Matrix Extensions: scores and weighted sums in bfloat16.
//
// The cache's layout is that of AMX's second operand: keys [d/2][16 tokens][2], values [8 pairs][16 dimensions][2].
#pragma once
#include <immintrin.h>
#include <stddef.h>

#include "attention/chunk.h"

namespace {

constexpr int TILE = 16;  // rows of a tile, and its columns of 32 bits

inline bool amx_suits(const Shape& shape) {
    return shape.block_size % TILE == 0 && shape.head_dim % 32 == 0 && shape.head_dim <= 256;
}

// Sets this thread's tiles for `count` rows while it lives: 0 and 1 sums, 2 queries, 3 and 4 keys, 5 weights, 6 and 7
// values.
struct AmxSession {
    explicit AmxSession(int count) {
        const uint8_t n = uint8_t(count);
        struct alignas(64) Sizes {
            uint8_t palette, start_row, reserved[14];
            uint16_t row_bytes[16];
            uint8_t rows[16];
        } const sizes = {1, 0, {}, {64, 64, 64, 64, 64, 32, 64, 64}, {n, n, n, TILE, TILE, n, TILE / 2, TILE / 2}};
        _tile_loadconfig(&sizes);
    }
    ~AmxSession() { _tile_release(); }
};

// Products of queries [rows][d] with all keys of a chunk, into `scores` [rows][stride].
inline void amx_scores(const Shape& shape, const Tile& tile, const Chunk& chunk, const uint16_t* queries, float* scores,
                       size_t stride) {
    const int d = shape.head_dim, per_block = shape.block_size / TILE, units = (chunk.last - chunk.first) * per_block;
    const size_t key_bytes = size_t(shape.block_size) * WORD, query_bytes = size_t(d) * 2;
    const auto keys = [&](int unit) {
        return tile.block(chunk.first + unit / per_block) + unit % per_block * WORD * TILE;
    };
    for (int unit = 0; unit < units; unit += 2) {
        const int other = unit + 1 < units ? unit + 1 : unit;  // the last one may be done twice
        for (int u = unit; u <= other; u++)
            if (u % per_block == 0) fetch_ahead(shape, tile, chunk, u / per_block);
        const uint8_t *k0 = keys(unit), *k1 = keys(other);
        _tile_zero(0);
        _tile_zero(1);
        for (int i = 0; i < d; i += 32) {
            const size_t offset = size_t(2) * i * shape.block_size;
            _tile_loadd(2, queries + i, query_bytes);
            _tile_loadd(3, k0 + offset, key_bytes);
            _tile_dpbf16ps(0, 2, 3);
            _tile_loadd(4, k1 + offset, key_bytes);
            _tile_dpbf16ps(1, 2, 4);
        }
        _tile_stored(0, scores + size_t(unit) * TILE, stride * sizeof(float));
        _tile_stored(1, scores + size_t(other) * TILE, stride * sizeof(float));
    }
}

// Add the values of the chunk's blocks before `last`, all of them written, weighted, to `acc` [rows][acc_stride].
inline void amx_weigh(const Shape& shape, const Tile& tile, const Chunk& chunk, int last, const uint8_t* weights,
                      size_t stride, float* acc, size_t acc_stride) {
    const size_t value_bytes = size_t(shape.head_dim) * WORD;
    for (int d = 0; d < shape.head_dim; d += 2 * TILE) {
        _tile_loadd(0, acc + d, acc_stride * sizeof(float));
        _tile_loadd(1, acc + d + TILE, acc_stride * sizeof(float));
        for (int b = chunk.first; b < last; b++) {
            if (d == 0) fetch_ahead(shape, tile, chunk, chunk.last + b - 2 * chunk.first);
            const uint8_t* values = tile.block(b) + shape.values() + WORD * d;
            for (int j = 0; j < shape.block_size; j += TILE, values += TILE / 2 * value_bytes) {
                _tile_loadd(5, weights + 2 * (chunk.index(shape, b) + j), stride);
                _tile_loadd(6, values, value_bytes);
                _tile_dpbf16ps(0, 5, 6);
                _tile_loadd(7, values + WORD * TILE, value_bytes);
                _tile_dpbf16ps(1, 5, 7);
            }
        }
        _tile_stored(0, acc + d, acc_stride * sizeof(float));
        _tile_stored(1, acc + d + TILE, acc_stride * sizeof(float));
    }
}

}  // namespace

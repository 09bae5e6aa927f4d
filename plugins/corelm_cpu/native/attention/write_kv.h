// Storing keys and values in the cache's layout (see layout.h).
#pragma once
#include "attention/layout.h"

namespace {

// A token at an even slot clears the odd one after it: what an earlier owner left there, perhaps NaNs, would reach the
// sum although it has weight 0.
inline void write_token(const Shape& shape, uint16_t* region, int slot, const uint16_t* k, const uint16_t* v) {
    const int d = shape.head_dim;
    uint16_t* keys = region + 2 * slot;
    for (int i = 0; i < d; i += 2) __builtin_memcpy(keys + size_t(i) * shape.slots(), k + i, 4);
    uint16_t* values = region + shape.values() + size_t(slot / 2) * 2 * d;
    if (slot % 2)
        for (int i = 0; i < d; i++) values[2 * i + 1] = v[i];
    else
        for (int i = 0; i < d; i++) {
            const uint16_t pair[2] = {v[i], 0};
            __builtin_memcpy(values + 2 * i, pair, 4);
        }
}

void write_kv(const Shape& shape, uint16_t* cache, int64_t tokens, const int64_t* slots, const uint16_t* k,
              const uint16_t* v) {
    const int d = shape.head_dim;
    for (int64_t i = 0; i < tokens; i++) {
        uint16_t* block = cache + slots[i] / shape.block_size * shape.block();
        for (int head = 0; head < shape.kv_heads; head++) {
            const size_t row = (i * shape.kv_heads + head) * d;
            write_token(shape, block + head * shape.region(), int(slots[i] % shape.block_size), k + row, v + row);
        }
    }
}

}  // namespace

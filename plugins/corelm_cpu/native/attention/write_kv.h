// Storing keys and values in the cache's layout (see layout.h).
#pragma once
#include "attention/layout.h"
#include "attention/quantise.h"

namespace {

// A token at an even slot clears the odd one after it: what an earlier owner left there, perhaps NaNs, would reach the
// sum although it has weight 0.
inline void write_bf16(const Shape& shape, uint8_t* region, int slot, const uint8_t* of_k, const uint8_t* of_v) {
    const int d = shape.head_dim;
    const uint16_t *k = reinterpret_cast<const uint16_t*>(of_k), *v = reinterpret_cast<const uint16_t*>(of_v);
    uint8_t* keys = region + WORD * slot;
    for (int i = 0; i < d; i += 2) __builtin_memcpy(keys + size_t(2) * i * shape.slots(), k + i, WORD);
    uint16_t* values = reinterpret_cast<uint16_t*>(region + shape.values()) + size_t(slot / 2) * 2 * d;
    if (slot % 2)
        for (int i = 0; i < d; i++) values[2 * i + 1] = v[i];
    else
        for (int i = 0; i < d; i++) {
            const uint16_t pair[2] = {v[i], 0};
            __builtin_memcpy(values + 2 * i, pair, WORD);
        }
}

inline void write_int8(const Shape& shape, uint8_t* region, int slot, const uint8_t* of_k, const uint8_t* of_v) {
    const int d = shape.head_dim;
    const uint16_t *k = reinterpret_cast<const uint16_t*>(of_k), *v = reinterpret_cast<const uint16_t*>(of_v);
    const Coding of_keys(k, d), of_values(v, d);
    uint8_t* keys = region + WORD * slot;
    for (int i = 0; i < d; i += WORD) {
        uint8_t word[WORD];
        for (int j = 0; j < WORD; j++) word[j] = uint8_t(of_keys.code(k[i + j]) + 128);
        __builtin_memcpy(keys + size_t(i) * shape.slots(), word, WORD);
    }
    uint8_t* values = region + shape.values() + size_t(slot / WORD) * WORD * d + slot % WORD;
    for (int i = 0; i < d; i++) values[WORD * i] = uint8_t(of_values.code(v[i]));
    reinterpret_cast<float*>(region + shape.scales())[slot] = of_keys.scale;
    reinterpret_cast<float*>(region + shape.values() + shape.scales())[slot] = of_values.scale;
}

inline void write_f32(const Shape& shape, uint8_t* region, int slot, const uint8_t* k, const uint8_t* v) {
    const size_t width = size_t(shape.head_dim) * WORD;
    uint8_t* keys = region + WORD * slot;
    for (size_t i = 0; i < width; i += WORD) __builtin_memcpy(keys + i * shape.slots(), k + i, WORD);
    __builtin_memcpy(region + shape.values() + slot * width, v, width);
}

void write_kv(const Shape& shape, uint8_t* cache, int64_t tokens, const int64_t* slots, const uint8_t* k,
              const uint8_t* v) {
    const size_t width = shape.head_dim * number_bytes(shape.kind);
    const auto write = shape.coded() ? write_int8 : shape.exact() ? write_f32 : write_bf16;
    for (int64_t i = 0; i < tokens; i++) {
        uint8_t* block = cache + slots[i] / shape.block_size * shape.block();
        for (int head = 0; head < shape.kv_heads; head++) {
            const size_t row = (i * shape.kv_heads + head) * width;
            write(shape, block + head * shape.region(), int(slots[i] % shape.block_size), k + row, v + row);
        }
    }
}

}  // namespace

// Weights come from far away, and once a step: they are asked for long before they are needed.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace {

constexpr size_t AHEAD_BYTES = 8192;

// Fetch what lies ahead of `bytes` of weights that are about to be used, into the second cache: the first has too few
// places for what is on its way.
inline void fetch_ahead(const uint8_t* weights, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(weights + AHEAD_BYTES + i, 0, 2);
}

}  // namespace

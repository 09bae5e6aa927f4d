// Weights come from far away, and once a step: they are asked for long before they are needed.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace {

// What to fetch with every group of inputs, into the second cache: the first has too few places for what is on its way.
struct Fetch {
    const uint8_t* next;
    size_t bytes;

    void operator()() {
        for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(next + i, 0, 2);
        next += bytes;
    }
};

constexpr size_t FAR = 8192;  // bytes: a moment's work where all weights are read once

// What block number `block` of the rows fetches while it is multiplied with a tile: alone, what it needs soon itself;
// one of several, its share of the next tile.
inline Fetch fetch_share(const uint8_t* tile, size_t group_bytes, int groups, int block, int blocks) {
    const size_t share = (group_bytes / blocks + 63) / 64 * 64;
    return {tile + (blocks == 1 ? FAR : (group_bytes + block * share) * groups), share};
}

}  // namespace

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

}  // namespace

// What each instruction set supplies to linear layers.
#pragma once
#include "linear/layout.h"

constexpr int ROWS = 256;  // of products that are computed at a time

// What becomes of the products of rows and outputs.
struct Target {
    enum Use {
        STORE,     // out = products
        ADD,       // out += products
        SILU_MUL,  // out = silu(gate) * up; outputs are 16 gates and their 16 ups, in turns
        BEST,      // the largest of each row is found; and rows with a place in `logits` are stored there
    } use;
    float* out;  // [rows][stride]
    size_t stride;
    int outputs;         // stored ones: the last tile may have more
    const float* bias;   // [outputs], or null
    float* best;         // [rows]: largest so far; a NaN as soon as any is a NaN or infinite
    int64_t* best_at;    // [rows]: its place
    float* const* logits;  // [rows]: [outputs], or null
};

struct LinearKernels {
    // What so many rows of activations are multiplied as.
    Form (*choose_form)(Kind kind, int rows);
    // Bring row number `row` from `x`, whose length is a multiple of INPUTS, to the form that is chosen.
    void (*quantise)(const float* x, int row, const Activations& to);
    // Products [rows][OUTPUTS] of at most ROWS rows from `first`, a multiple of PANEL, on with one tile; `out` has room for
    // whole panels. `scratch` holds an unpacked tile.
    void (*multiply)(Kind kind, const uint8_t* tile, const Activations& x, int first, int rows, float* out,
                     uint8_t* scratch);
    // The weights of input 0, 1, ... of one output of a tile of kind Q8_0, BF16 or F32, to `out`, a multiple of INPUTS
    // long.
    void (*weights_of)(Kind kind, const uint8_t* tile, int groups, int output, float* out);
    // Put products [rows][OUTPUTS] of tile number `tile` and rows from `first` on where they belong.
    void (*finish)(const Target& target, int tile, int first, int rows, const float* products);
};

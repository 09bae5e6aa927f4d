// How the weights of a linear layer lie in memory, and the activations that they are multiplied with.
//
// Outputs come in tiles of 32 and inputs in groups of 32; what is missing is filled with weights of zero. A matrix is an
// array of tiles, a tile an array of groups, and a group is
//
//   scales   [32] half-precision floats, one for each output
//   offsets  [32] half-precision floats, only with Q4_1
//   codes    Q8_0   [8][32][4] bytes: the codes of inputs 4i to 4i+3 of each output side by side, so that outputs are in
//                   the lanes of a vector, or the columns of a tile of AMX
//            Q4_*   [4][32][4] bytes: the low halves are the codes of inputs 8i to 8i+3, the high ones of 8i+4 to 8i+7
//
// or, without scales,
//
//   weights  BF16   [16][32][2] bfloat16s: inputs 2i and 2i+1 of each output side by side
//            F32    [32][32] floats: input i of each output
//
// A weight is scale * (code - 128) with Q8_0, scale * (code - 8) with Q4_0, scale * code + offset with Q4_1. The names
// are those of GGUF's types, which have the same groups and so are taken over without loss. A change here needs another
// LAYOUT_VERSION in corelm_cpu/packed/layout.py.
#pragma once
#include <stddef.h>
#include <stdint.h>

constexpr int OUTPUTS = 32;  // of a tile
constexpr int INPUTS = 32;   // of a group

enum Kind : int { Q8_0, Q4_0, Q4_1, BF16, F32, KINDS };

static inline bool is_coded(Kind kind) { return kind < BF16; }
static inline int groups_of(int inputs) { return (inputs + INPUTS - 1) / INPUTS; }
static inline int tiles_of(int outputs) { return (outputs + OUTPUTS - 1) / OUTPUTS; }

// Bytes of a group's scales and offsets, and of the codes or weights that follow them.
constexpr size_t SCALE_BYTES[KINDS] = {2 * OUTPUTS, 2 * OUTPUTS, 4 * OUTPUTS, 0, 0};
constexpr size_t CODE_BYTES[KINDS] = {OUTPUTS * INPUTS, OUTPUTS * INPUTS / 2, OUTPUTS * INPUTS / 2,
                                      OUTPUTS * INPUTS * sizeof(uint16_t), OUTPUTS * INPUTS * sizeof(float)};

constexpr size_t group_bytes(Kind kind) { return SCALE_BYTES[kind] + CODE_BYTES[kind]; }
static inline size_t tile_bytes(Kind kind, int inputs) { return group_bytes(kind) * groups_of(inputs); }

constexpr int PANEL = 16;  // rows of a tile of AMX

// Rows of activations in groups of inputs.
//
//   BYTES     codes [rows][groups][32], x = scale * code; scales [rows][groups]; sums [rows][groups] of a group's codes.
//             Rows lie apart, so that threads which write them do not meet in a cache line.
//   BFLOAT16  codes [rows][groups][32], bfloat16
//   PANELS    codes [rows / 16][groups][16][32], bfloat16: a row of a panel after the other, for AMX
//   FLOATS    codes [rows][groups][32], floats
enum class Form { BYTES, BFLOAT16, PANELS, FLOATS };

struct Activations {
    int groups;
    Form form;
    void* codes;
    float* scales;
    int32_t* sums;
};

// Bytes that a number takes at most in the activations of a kind of weights.
constexpr size_t activation_bytes(Kind kind) { return kind == F32 ? sizeof(float) : sizeof(uint16_t); }

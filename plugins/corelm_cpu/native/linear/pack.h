// From the rows of a checkpoint's tensors to packed matrices (see layout.h).
#pragma once
#include "linear/layout.h"

// How rows are stored: as floats, or in GGUF's blocks of 32, which are
//
//   Q8_0   a half-precision scale, 32 signed bytes
//   Q4_0   a half-precision scale, 16 bytes: elements 0 to 15 in the low halves, 16 to 31 in the high ones
//   Q4_1   the same with a half-precision offset after the scale
enum class Encoding : int { F32, F16, BF16, Q8_0, Q4_0, Q4_1 };

struct Rows {
    Encoding encoding;
    const uint8_t* data;
    int64_t count;
    int inputs;  // a multiple of 32 if in blocks
};

// Where rows go: row r becomes output first + r / 16 * stride + r % 16.
struct Places {
    int64_t first, stride;
};

// Write rows into a matrix, whose memory was zero. Floats become any kind but Q4_0, blocks of Q4_0 any quantised kind
// without loss, other blocks their own; false if the matrix is of another kind. Where numbers are quantised, one that is
// not finite makes its group's scale a NaN.
bool pack(uint8_t* matrix, Kind kind, const Places& places, const Rows& rows);

// The products of rows with a tile of weights, by what is fastest for their number.
#pragma once
#include "linear/kernels.h"
#include "linear/rows.h"
#include "linear/unpack.h"
#include "linear/words.h"
#ifdef __AMX_BF16__
#include "linear/amx_panels.h"
#endif

namespace {

Form choose_form(Kind kind, [[maybe_unused]] int rows) {
    if (kind == F32) return Form::FLOATS;
#ifdef __AMX_BF16__
    if (rows >= (kind == BF16 ? AMX_ROWS : WIDENING_ROWS)) return Form::PANELS;
#endif
    return kind == BF16 ? Form::BFLOAT16 : Form::BYTES;
}

template <Kind kind>
void multiply_codes(const uint8_t* tile, const Activations& x, int first, int rows, float* out, uint8_t* scratch) {
    if (kind == Q8_0) return multiply_blocks<kind, true>(tile, x, first, rows, out, false);
    // Each block of rows takes codes apart anew, which is cheap: few blocks are done before a tile is unpacked.
    if (rows <= 4 * TOGETHER_ROWS) return multiply_blocks<kind, false>(tile, x, first, rows, out, false);
    unpack<kind>(tile, x.groups, scratch);
    multiply_blocks<kind, true>(scratch, x, first, rows, out, true);
}

template <Kind kind>
void multiply_kind(const uint8_t* tile, const Activations& x, int first, int rows, float* out, uint8_t* scratch) {
#ifdef __AMX_BF16__
    if (x.form == Form::PANELS)
        return multiply_panels<kind>(tile, x, first, rows, out, reinterpret_cast<uint16_t*>(scratch));
#endif
    if constexpr (kind == BF16)
        multiply_words<BfloatWords>(tile, x, first, rows, out);
    else
        multiply_codes<kind>(tile, x, first, rows, out, scratch);
}

void multiply(Kind kind, const uint8_t* tile, const Activations& x, int first, int rows, float* out, uint8_t* scratch) {
    switch (kind) {
        case Q4_0: return multiply_kind<Q4_0>(tile, x, first, rows, out, scratch);
        case Q4_1: return multiply_kind<Q4_1>(tile, x, first, rows, out, scratch);
        case BF16: return multiply_kind<BF16>(tile, x, first, rows, out, scratch);
        case F32: return multiply_words<FloatWords>(tile, x, first, rows, out);
        default: return multiply_kind<Q8_0>(tile, x, first, rows, out, scratch);
    }
}

}  // namespace

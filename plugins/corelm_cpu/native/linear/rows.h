// Products of a few rows with a tile of weights, by dot products of bytes.
#pragma once
#include "linear/fetch.h"
#include "linear/layout.h"

namespace {

constexpr int TOGETHER_ROWS = LANES == 16 ? 6 : 2;  // as many as there are registers for
constexpr int SIDE_BY_SIDE = 2;                      // vectors of outputs at a time

constexpr int zero_code(Kind kind) { return kind == Q8_0 ? 128 : kind == Q4_0 ? 8 : 0; }

// Codes of 4 bits take half a byte in memory, and a whole one (`wide`) where a tile was unpacked.
constexpr size_t stored_codes(Kind kind, bool wide) { return wide ? CODE_BYTES[Q8_0] : CODE_BYTES[kind]; }

// Add a group's products to `sum`; `codes` are those of the first of the outputs.
template <bool wide, int R>
inline void add_dots(const uint8_t* codes, const int8_t* const* x, Ints (&sum)[R][SIDE_BY_SIDE]) {
    for (int i = 0; i < INPUTS; i += wide ? 4 : 8, codes += 4 * OUTPUTS) {
        Codes low[SIDE_BY_SIDE], high[SIDE_BY_SIDE];
        for (int v = 0; v < SIDE_BY_SIDE; v++) {
            if (wide)
                low[v] = load_codes(codes + 4 * LANES * v);
            else
                load_halves(codes + 4 * LANES * v, low[v], high[v]);
        }
        for (int r = 0; r < R; r++) {
            const Quad quad = splat_quad(x[r] + i);
            for (int v = 0; v < SIDE_BY_SIDE; v++) sum[r][v] = dot(sum[r][v], low[v], quad);
            if (wide) continue;
            const Quad next = splat_quad(x[r] + i + 4);
            for (int v = 0; v < SIDE_BY_SIDE; v++) sum[r][v] = dot(sum[r][v], high[v], next);
        }
    }
}

// Products of rows `row` to `row` + R - 1 with outputs `first` to `first` + SIDE_BY_SIDE * LANES - 1, to `out` [R][OUTPUTS].
// On the way it fetches what comes next.
template <Kind kind, bool wide, int R>
void multiply_some(const uint8_t* tile, const Activations& x, int row, int first, float* out, Fetch fetch) {
    constexpr size_t group_size = SCALE_BYTES[kind] + stored_codes(kind, wide);
    size_t place[R];
    Floats sum[R][SIDE_BY_SIDE];
    for (int r = 0; r < R; r++) {
        place[r] = size_t(row + r) * x.groups;
        for (int v = 0; v < SIDE_BY_SIDE; v++) sum[r][v] = splat(0);
    }
    for (int g = 0; g < x.groups; g++, tile += group_size) {
        fetch();
        const int8_t* codes[R];
        Ints dots[R][SIDE_BY_SIDE];
        for (int r = 0; r < R; r++) {
            codes[r] = static_cast<const int8_t*>(x.codes) + place[r] * INPUTS;
            for (int v = 0; v < SIDE_BY_SIDE; v++) dots[r][v] = splat_int(-zero_code(kind) * x.sums[place[r]]);
        }
        add_dots<wide, R>(tile + SCALE_BYTES[kind] + 4 * first, codes, dots);
        const uint16_t* scales = reinterpret_cast<const uint16_t*>(tile) + first;
        for (int v = 0; v < SIDE_BY_SIDE; v++) {
            const Floats scale = load_half_floats(scales + v * LANES);
            const Floats offset = kind == Q4_1 ? load_half_floats(scales + OUTPUTS + v * LANES) : scale;
            for (int r = 0; r < R; r++) {
                const Floats own = splat(x.scales[place[r]]);
                sum[r][v] = fma(mul(to_floats(dots[r][v]), own), scale, sum[r][v]);
                if (kind == Q4_1) sum[r][v] = fma(mul(splat(float(x.sums[place[r]])), own), offset, sum[r][v]);
            }
        }
        for (int r = 0; r < R; r++) place[r]++;
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < SIDE_BY_SIDE; v++) store(out + r * OUTPUTS + first + v * LANES, sum[r][v]);
}

template <Kind kind, bool wide, int R>
void multiply_rows(const uint8_t* tile, const Activations& x, int row, float* out, Fetch fetch) {
    for (int first = 0; first < OUTPUTS; first += SIDE_BY_SIDE * LANES) {
        multiply_some<kind, wide, R>(tile, x, row, first, out, fetch);
        fetch.bytes = 0;
    }
}

using MultiplyRows = void (*)(const uint8_t*, const Activations&, int, float*, Fetch);

template <Kind kind, bool wide>
constexpr MultiplyRows MULTIPLY_ROWS[] = {
    multiply_rows<kind, wide, 1>, multiply_rows<kind, wide, 2>,
#if defined(__AVX512F__)
    multiply_rows<kind, wide, 3>, multiply_rows<kind, wide, 4>, multiply_rows<kind, wide, 5>, multiply_rows<kind, wide, 6>,
#endif
};

// Rows in blocks of about equal size. Each fetches its share of the next tile, unless this one was `unpacked`.
template <Kind kind, bool wide>
void multiply_blocks(const uint8_t* tile, const Activations& x, int row, int rows, float* out, bool unpacked) {
    const int blocks = (rows + TOGETHER_ROWS - 1) / TOGETHER_ROWS;
    for (int b = 0; b < blocks; b++) {
        const int from = rows * b / blocks, to = rows * (b + 1) / blocks;
        Fetch fetch = fetch_share(tile, group_bytes(kind), x.groups, b, blocks);
        if (unpacked) fetch.bytes = 0;
        MULTIPLY_ROWS<kind, wide>[to - from - 1](tile, x, row + from, out + from * OUTPUTS, fetch);
    }
}

}  // namespace

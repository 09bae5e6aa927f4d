// Products of rows with a tile of weights, in bfloat16 by AMX, which pays for itself from AMX_ROWS rows on. Quantised
// weights are widened on the way, from WIDENING_ROWS rows on; activations keep 8 bits of precision each, as with bytes,
// but no common scale.
#pragma once
#include <immintrin.h>

#include "linear/widen.h"

namespace {

constexpr int AMX_ROWS = 4, WIDENING_ROWS = PANEL + 1;
constexpr int GROUPS_AT_ONCE = 6;
constexpr int PANEL_GROUP = PANEL * INPUTS;      // elements
constexpr int GROUP_WEIGHTS = INPUTS * OUTPUTS;  // elements
constexpr int PAIR_BYTES = 4 * OUTPUTS;          // a pair of inputs of each output

// Sets this thread's tiles while it lives, all of the largest size: 0 to 3 products, 4 and 5 activations, 6 and 7
// weights.
struct AmxTiles {
    AmxTiles() {
        struct alignas(64) Sizes {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } const sizes;
        _tile_loadconfig(&sizes);
    }
    ~AmxTiles() { _tile_release(); }
};

inline void add_panels(const uint16_t* first, const uint16_t* second, const uint16_t* weights) {
    _tile_loadd(6, weights, PAIR_BYTES);
    _tile_loadd(7, weights + 2 * HALF, PAIR_BYTES);
    _tile_loadd(4, first, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, second, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

inline void load_sums(const float* first, const float* second) {
    _tile_loadd(0, first, OUTPUTS * sizeof(float));
    _tile_loadd(1, first + HALF, OUTPUTS * sizeof(float));
    _tile_loadd(2, second, OUTPUTS * sizeof(float));
    _tile_loadd(3, second + HALF, OUTPUTS * sizeof(float));
}

inline void store_sums(float* first, float* second) {
    _tile_stored(0, first, OUTPUTS * sizeof(float));
    _tile_stored(1, first + HALF, OUTPUTS * sizeof(float));
    _tile_stored(2, second, OUTPUTS * sizeof(float));
    _tile_stored(3, second + HALF, OUTPUTS * sizeof(float));
}

// Groups `begin` to `end` - 1 of a tile in bfloat16, where they lie or in `widened`.
template <Kind kind>
inline const uint16_t* some_groups(const uint8_t* tile, int begin, int end, uint16_t* widened) {
    if constexpr (kind == BF16) {
        return reinterpret_cast<const uint16_t*>(tile + begin * group_bytes(kind));
    } else {
        for (int g = begin; g < end; g++)
            widen_group<kind>(tile + g * group_bytes(kind), widened + (g - begin) * GROUP_WEIGHTS);
        return widened;
    }
}

// Products of rows from `first` on with a tile, to `out`. Some groups pass at a time, few enough to stay in the nearest
// cache for all rows; `widened` takes their weights, if these are quantised.
template <Kind kind>
void multiply_panels(const uint8_t* tile, const Activations& x, int first, int rows, float* out, uint16_t* widened) {
    const AmxTiles session;
    const size_t panel = size_t(x.groups) * PANEL_GROUP;
    const uint16_t* activations = static_cast<const uint16_t*>(x.codes) + first / PANEL * panel;
    const int panels = (rows + PANEL - 1) / PANEL;
    for (int i = 0; i < panels * PANEL * OUTPUTS; i += LANES) store(out + i, splat(0));
    for (int begin = 0; begin < x.groups; begin += GROUPS_AT_ONCE) {
        const int end = begin + GROUPS_AT_ONCE < x.groups ? begin + GROUPS_AT_ONCE : x.groups;
        const uint16_t* weights = some_groups<kind>(tile, begin, end, widened);
        for (int p = 0; p < panels; p += 2) {
            const int other = p + 1 < panels ? p + 1 : p;  // the last one may be done twice, which takes no longer
            float *sums = out + p * PANEL * OUTPUTS, *other_sums = out + other * PANEL * OUTPUTS;
            load_sums(sums, other_sums);
            for (int g = begin; g < end; g++) {
                const uint16_t* x_of_group = activations + size_t(g) * PANEL_GROUP;
                if (kind == BF16 && p == 0) Fetch{tile + g * group_bytes(kind) + FAR, group_bytes(kind)}();
                add_panels(x_of_group + p * panel, x_of_group + other * panel, weights + (g - begin) * GROUP_WEIGHTS);
            }
            store_sums(sums, other_sums);
        }
    }
}

}  // namespace

#include "linear/pack.h"

#include "linear/half.h"
#include "linear/round.h"

namespace {

void put(uint8_t* at, Kind kind, int output, const Group& group) {
    memcpy(at + 2 * output, &group.scale, 2);
    if (kind == Q4_1) memcpy(at + 2 * (OUTPUTS + output), &group.offset, 2);
    uint8_t* const codes = at + SCALE_BYTES[kind] + 4 * output;
    if (kind == Q8_0) {
        for (int i = 0; i < INPUTS / 4; i++) memcpy(codes + 4 * OUTPUTS * i, group.codes + 4 * i, 4);
        return;
    }
    for (int i = 0; i < INPUTS / 8; i++) {
        uint32_t low, high;
        memcpy(&low, group.codes + 8 * i, 4);
        memcpy(&high, group.codes + 8 * i + 4, 4);
        low |= high << 4;
        memcpy(codes + 4 * OUTPUTS * i, &low, 4);
    }
}

struct Numbers {
    float at[INPUTS];
};

void put(uint8_t* at, Kind kind, int output, const Numbers& numbers) {
    uint8_t* const words = at + 4 * output;
    if (kind == F32) {
        for (int i = 0; i < INPUTS; i++) memcpy(words + 4 * OUTPUTS * i, numbers.at + i, 4);
        return;
    }
    for (int i = 0; i < INPUTS; i += 2) {
        const uint32_t pair = bfloat16_of_float(numbers.at[i]) | uint32_t(bfloat16_of_float(numbers.at[i + 1])) << 16;
        memcpy(words + 2 * OUTPUTS * i, &pair, 4);
    }
}

// `read(row, i)` gives group i of a row. Sixteen rows at a time share the cache lines that they are written to.
template <class Read>
bool pack_groups(uint8_t* matrix, Kind kind, const Places& places, const Rows& rows, size_t row_bytes, Read read) {
    const size_t group_size = group_bytes(kind), tile_size = tile_bytes(kind, rows.inputs);
    for (int64_t begin = 0; begin < rows.count; begin += 16) {
        const int64_t end = begin + 16 < rows.count ? begin + 16 : rows.count;
        for (int i = 0; i < groups_of(rows.inputs); i++)
            for (int64_t row = begin; row < end; row++) {
                const int64_t output = places.first + row / 16 * places.stride + row % 16;
                uint8_t* const at = matrix + output / OUTPUTS * tile_size + i * group_size;
                put(at, kind, int(output % OUTPUTS), read(rows.data + row * row_bytes, i));
            }
    }
    return true;
}

// `number(p, j)` gives element j at p.
template <class Number>
bool pack_floats(uint8_t* matrix, Kind kind, const Places& places, const Rows& rows, size_t bytes, Number number) {
    const auto read = [&](const uint8_t* row, int group) {
        const int first = group * INPUTS, count = rows.inputs - first < INPUTS ? rows.inputs - first : INPUTS;
        Numbers numbers = {};
        for (int j = 0; j < count; j++) numbers.at[j] = number(row + (first + j) * bytes);
        return numbers;
    };
    const size_t row_bytes = bytes * rows.inputs;
    if (!is_coded(kind)) return pack_groups(matrix, kind, places, rows, row_bytes, read);
    const auto round = kind == Q8_0 ? round_to_8_bits : round_to_4_bits;
    return kind != Q4_0 && pack_groups(matrix, kind, places, rows, row_bytes,
                                       [&](const uint8_t* row, int group) { return round(read(row, group).at); });
}

template <class Decode>
bool pack_blocks(uint8_t* matrix, Kind kind, const Places& places, const Rows& rows, size_t bytes, Decode decode) {
    const auto read = [&](const uint8_t* row, int group) { return decode(row + group * bytes); };
    return pack_groups(matrix, kind, places, rows, bytes * groups_of(rows.inputs), read);
}

uint16_t load_16_bits(const uint8_t* p) {
    uint16_t bits;
    memcpy(&bits, p, 2);
    return bits;
}

Group decode_q8_0(const uint8_t* block) {
    Group group = {load_16_bits(block), 0, {}};
    for (int j = 0; j < INPUTS; j++) group.codes[j] = block[2 + j] ^ 128;  // + 128
    return group;
}

Group decode_4_bits(uint16_t scale, uint16_t offset, const uint8_t* halves) {
    Group group = {scale, offset, {}};
    for (int j = 0; j < INPUTS / 2; j++) {
        group.codes[j] = halves[j] & 15;
        group.codes[INPUTS / 2 + j] = halves[j] >> 4;
    }
    return group;
}

Group decode_q4_0(const uint8_t* block) {
    const uint16_t scale = load_16_bits(block);
    return decode_4_bits(scale, half_of_float(-8 * float_of_half(scale)), block + 2);
}

Group widen_q4_0(const uint8_t* block) {
    Group group = decode_q4_0(block);
    for (uint8_t& code : group.codes) code += 128 - 8;
    return group;
}

Group decode_q4_1(const uint8_t* block) {
    return decode_4_bits(load_16_bits(block), load_16_bits(block + 2), block + 4);
}

float load_f32(const uint8_t* p) {
    float x;
    memcpy(&x, p, 4);
    return x;
}

}  // namespace

bool pack(uint8_t* matrix, Kind kind, const Places& places, const Rows& rows) {
    switch (rows.encoding) {
        case Encoding::F32:
            return pack_floats(matrix, kind, places, rows, 4, load_f32);
        case Encoding::F16:
            return pack_floats(matrix, kind, places, rows, 2, [](auto p) { return float_of_half(load_16_bits(p)); });
        case Encoding::BF16:
            return pack_floats(matrix, kind, places, rows, 2,
                               [](auto p) { return float_of_bfloat16(load_16_bits(p)); });
        case Encoding::Q8_0:
            return kind == Q8_0 && pack_blocks(matrix, kind, places, rows, 34, decode_q8_0);
        case Encoding::Q4_0:
            return is_coded(kind) &&
                   pack_blocks(matrix, kind, places, rows, 18, kind == Q8_0 ? widen_q4_0 : decode_q4_0);
        case Encoding::Q4_1:
            return kind == Q4_1 && pack_blocks(matrix, kind, places, rows, 20, decode_q4_1);
    }
    return false;
}

// A group of 32 floats as codes, with little error.
#pragma once
#include <math.h>

#include "linear/half.h"
#include "linear/layout.h"

namespace {

struct Group {
    uint16_t scale, offset;  // half precision
    uint8_t codes[INPUTS];
};

struct Line {  // code -> scale * code + offset
    float scale, offset;
};

// A sum over a group, in parts that the compiler makes vectors of.
template <class Term>
inline float sum(Term term) {
    float parts[8] = {};
    for (int j = 0; j < INPUTS; j += 8)
        for (int k = 0; k < 8; k++) parts[k] += term(j + k);
    return ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));
}

template <class Value>
inline float maximum(Value value) {
    float parts[8];
    for (int k = 0; k < 8; k++) parts[k] = value(k);
    for (int j = 8; j < INPUTS; j += 8)
        for (int k = 0; k < 8; k++) parts[k] = value(j + k) > parts[k] ? value(j + k) : parts[k];
    float most = parts[0];
    for (int k = 1; k < 8; k++) most = parts[k] > most ? parts[k] : most;
    return most;
}

// The codes from 0 to `most` that are nearest on the line.
template <class Code>
inline void find_nearest(const float* numbers, const Line& line, float most, Code* codes) {
    const float inverse = line.scale > 0 ? 1 / line.scale : 0;
    for (int j = 0; j < INPUTS; j++) {
        float code = (numbers[j] - line.offset) * inverse + .5f;
        code = code > 0 ? code : 0;  // also a NaN
        codes[j] = Code(int(code < most ? code : most));
    }
}

inline float squared_error(const float* numbers, const Line& line, const float* codes) {
    return sum([&](int j) {
        const float error = line.scale * codes[j] + line.offset - numbers[j];
        return error * error;
    });
}

// The line of least squares for given codes; `line` if they are all equal.
inline Line fitted(const float* numbers, const Line& line, const float* codes) {
    const float x = sum([&](int j) { return codes[j]; }), y = sum([&](int j) { return numbers[j]; });
    const float xx = sum([&](int j) { return codes[j] * codes[j]; });
    const float xy = sum([&](int j) { return codes[j] * numbers[j]; });
    const float spread = INPUTS * xx - x * x;
    if (spread <= 0) return line;
    const float scale = (INPUTS * xy - x * y) / spread;
    return {scale, (y - scale * x) / INPUTS};
}

inline Group in_half_precision(const Line& line) { return {half_of_float(line.scale), half_of_float(line.offset), {}}; }

inline Group round_to_8_bits(const float* numbers) {
    const float largest = maximum([&](int j) { return fabsf(numbers[j]); });
    const bool finite = sum([&](int j) { return numbers[j] * 0; }) == 0;
    Group group = in_half_precision({finite ? largest / 127 : NAN, 0});
    const float scale = float_of_half(group.scale);
    find_nearest(numbers, {scale, -128 * scale}, 255, group.codes);
    return group;
}

// Codes and line are fitted to each other, first from the whole range and then from one without its extremes.
inline Group round_to_4_bits(const float* numbers) {
    const float high = maximum([&](int j) { return numbers[j]; }), low = -maximum([&](int j) { return -numbers[j]; });
    Line best = {NAN, 0};
    float least = INFINITY;
    const float ranges[] = {high - low, .9f * (high - low)};
    for (const float range : ranges) {
        Line line = {range / 15, (high + low - range) / 2};
        float codes[INPUTS];
        for (int pass = 0; pass < 3; pass++) {
            find_nearest(numbers, line, 15, codes);
            line = fitted(numbers, line, codes);
        }
        const float error = squared_error(numbers, line, codes);
        if (error < least) {
            least = error;
            best = line;
        }
    }
    Group group = in_half_precision(best);
    find_nearest(numbers, {float_of_half(group.scale), float_of_half(group.offset)}, 15, group.codes);
    return group;
}

}  // namespace

// 8 lanes in plain C++, for any processor.
#pragma once
#include <math.h>
#include <stdint.h>

#include "vectors/exp2.h"

namespace {

constexpr int LANES = 8;
struct Floats {
    float lane[LANES];
};
struct Pairs {
    uint32_t lane[LANES];  // two bfloat16 each
};

template <class Result = Floats, class Function>
inline Result each_lane(Function function) {
    Result result;
    for (int i = 0; i < LANES; i++) result.lane[i] = function(i);
    return result;
}

inline float as_float(uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

inline Floats splat(float x) {
    return each_lane([&](int) { return x; });
}
inline Floats load(const float* p) {
    return each_lane([&](int i) { return p[i]; });
}
inline void store(float* p, Floats x) { __builtin_memcpy(p, x.lane, sizeof x); }
inline Floats add(Floats a, Floats b) {
    return each_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Floats sub(Floats a, Floats b) {
    return each_lane([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Floats mul(Floats a, Floats b) {
    return each_lane([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Floats larger(Floats a, Floats b) {  // b if either is a NaN
    return each_lane([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}

inline float largest(Floats x) {
    float most = x.lane[0];
    for (int i = 1; i < LANES; i++) most = x.lane[i] > most ? x.lane[i] : most;
    return most;
}

inline float total(Floats x) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x.lane[i];
    return sum;
}

inline Pairs load_pairs(const uint16_t* p) {
    Pairs x;
    __builtin_memcpy(x.lane, p, sizeof x);
    return x;
}

inline Pairs splat_pair(const uint16_t* p) {
    uint32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return each_lane<Pairs>([&](int) { return pair; });
}

// -infinity in all lanes but those from `from` to `to` - 1.
inline Floats only_lanes(Floats x, int64_t from, int64_t to) {
    return each_lane([&](int i) { return i >= from && i < to ? x.lane[i] : -INFINITY; });
}

// 2 ** x for x <= 0, exactly 0 for -infinity; a NaN stays one.
inline Floats exp2_of(Floats x) {
    return each_lane([&](int i) {
        const float bounded = x.lane[i] >= -126.f ? x.lane[i] : -126.f;
        const int whole = int(bounded - .5f);  // to nearest, as `bounded` is not positive
        const float part = bounded - float(whole);
        float y = EXP2_SERIES[0];
        for (int term = 1; term < 6; term++) y = y * part + EXP2_SERIES[term];
        y *= as_float(uint32_t(whole + 127) << 23);
        return x.lane[i] < -126.f ? 0.f : x.lane[i] != x.lane[i] ? x.lane[i] : y;
    });
}

// Little-endian: the first of a pair is the low half of its lane.
inline Floats dot(Floats acc, Pairs a, Pairs b) {
    return each_lane([&](int i) {
        const float low = as_float(a.lane[i] << 16) * as_float(b.lane[i] << 16);
        return acc.lane[i] + low + as_float(a.lane[i] & 0xffff0000u) * as_float(b.lane[i] & 0xffff0000u);
    });
}

// Rounds to nearest, ties to even.
inline void store_bfloat16(uint16_t* p, Floats x) {
    for (int i = 0; i < LANES; i++) {
        uint32_t bits;
        __builtin_memcpy(&bits, &x.lane[i], sizeof bits);
        p[i] = x.lane[i] != x.lane[i] ? 0x7fc0 : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

inline void store_half(uint16_t* p, Floats x) { store_bfloat16(p, x); }

inline Floats divided(Floats a, Floats b) {
    return each_lane([&](int i) { return a.lane[i] / b.lane[i]; });
}

// Of each lane `a` where `x` is not negative, else `b`.
inline Floats positive_or(Floats a, Floats b, Floats x) {
    return each_lane([&](int i) { return x.lane[i] < 0 ? b.lane[i] : a.lane[i]; });
}

// Integers of 32 bits, and dot products of four bytes a lane: unsigned ones, which differ, by signed ones of all lanes;
// with `dot_signed`, signed ones by unsigned ones of all lanes.
struct Ints {
    int32_t lane[LANES];
};
struct Codes {
    uint8_t byte[4 * LANES];
};
struct Quad {
    int8_t byte[4];
};

inline Ints splat_int(int x) {
    return each_lane<Ints>([&](int) { return x; });
}
inline Floats to_floats(Ints x) {
    return each_lane([&](int i) { return float(x.lane[i]); });
}
inline Ints rounded(Floats x) {  // to nearest, ties to even
    return each_lane<Ints>([&](int i) { return int(__builtin_rintf(x.lane[i])); });
}
inline Floats absolute(Floats x) {
    return each_lane([&](int i) { return __builtin_fabsf(x.lane[i]); });
}
inline Floats fma(Floats a, Floats b, Floats c) {
#ifdef __FP_FAST_FMAF
    return each_lane([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
#else
    return add(mul(a, b), c);
#endif
}
inline Ints add(Ints a, Ints b) {
    return each_lane<Ints>([&](int i) { return a.lane[i] + b.lane[i]; });
}

// The bits of absolute values, whose order is that of the values, with infinity and then NaNs behind all numbers.
inline Ints magnitude(Floats x) {
    return each_lane<Ints>([&](int i) {
        int32_t bits;
        __builtin_memcpy(&bits, &x.lane[i], sizeof bits);
        return bits & 0x7fffffff;
    });
}
inline Ints larger(Ints a, Ints b) {
    return each_lane<Ints>([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}

inline int largest(Ints x) {
    int most = x.lane[0];
    for (int i = 1; i < LANES; i++) most = x.lane[i] > most ? x.lane[i] : most;
    return most;
}

inline int total(Ints x) {
    int sum = 0;
    for (int i = 0; i < LANES; i++) sum += x.lane[i];
    return sum;
}

inline void store_bytes(int8_t* p, Ints x) {
    for (int i = 0; i < LANES; i++) p[i] = int8_t(x.lane[i] < -128 ? -128 : x.lane[i] > 127 ? 127 : x.lane[i]);
}

// The lowest bytes of `x`, and the next ones.
inline void store_two_bytes(uint8_t* low, uint8_t* high, Ints x) {
    for (int i = 0; i < LANES; i++) {
        low[i] = uint8_t(x.lane[i]);
        high[i] = uint8_t(x.lane[i] >> 8);
    }
}

// Half precision: moving the exponent as if it were that of a float is a multiplication by 2 ** 112.
inline Floats load_half_floats(const uint16_t* p) {
    return each_lane([&](int i) {
        const uint32_t sign = uint32_t(p[i] & 0x8000) << 16, rest = uint32_t(p[i] & 0x7fff) << 13;
        if ((p[i] & 0x7c00) == 0x7c00) return as_float(sign | 0x7f800000u | rest);
        const float magnitude = as_float(rest) * 0x1p112f;
        return sign ? -magnitude : magnitude;
    });
}

inline Codes load_codes(const uint8_t* p) {
    Codes x;
    __builtin_memcpy(x.byte, p, sizeof x);
    return x;
}

// The low and the high halves of bytes.
inline void load_halves(const uint8_t* p, Codes& low, Codes& high) {
    for (int i = 0; i < 4 * LANES; i++) {
        low.byte[i] = p[i] & 15;
        high.byte[i] = p[i] >> 4;
    }
}

inline Codes load_signed_codes(const int8_t* p) { return load_codes(reinterpret_cast<const uint8_t*>(p)); }

inline Quad splat_quad(const int8_t* p) {
    Quad x;
    __builtin_memcpy(x.byte, p, sizeof x);
    return x;
}

inline Quad splat_unsigned_quad(const uint8_t* p) { return splat_quad(reinterpret_cast<const int8_t*>(p)); }

inline Ints dot(Ints acc, Codes a, Quad b) {
    return each_lane<Ints>([&](int i) {
        int sum = acc.lane[i];
        for (int j = 0; j < 4; j++) sum += int(a.byte[4 * i + j]) * b.byte[j];
        return sum;
    });
}

inline Ints dot_signed(Ints acc, Codes a, Quad b) {
    return each_lane<Ints>([&](int i) {
        int sum = acc.lane[i];
        for (int j = 0; j < 4; j++) sum += int(int8_t(a.byte[4 * i + j])) * uint8_t(b.byte[j]);
        return sum;
    });
}

}  // namespace

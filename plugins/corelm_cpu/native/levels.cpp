#include "levels.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#endif

// compile.py defines HAVE_ for each level that the compiler could make.
extern const Kernels portable, avx2, avx2_vnni, avx512_vnni, avx512_bf16, amx;

namespace {

#if defined(__x86_64__)
struct Features {
    unsigned b = 0, d = 0, a_of_1 = 0;  // registers of leaf 7, sub-leaves 0 and 1

    Features() {
        unsigned a, c, unused;
        __get_cpuid_count(7, 0, &a, &b, &c, &d);
        __get_cpuid_count(7, 1, &a_of_1, &unused, &c, &unused);
    }
};

const Features& features() {
    static const Features found;
    return found;
}

[[maybe_unused]] bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

[[maybe_unused]] bool has_avx2_vnni() { return has_avx2() && features().a_of_1 & 1u << 4; }

[[maybe_unused]] bool has_avx512_vnni() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

[[maybe_unused]] bool has_avx512_bf16() { return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16"); }

// Linux gives the tiles' registers only to processes that ask for them.
[[maybe_unused]] bool has_amx() {
#ifdef __linux__
    const unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25, all = bf16 | tile | int8;
    const long request_permission = 0x1023, tile_data = 18;
    return has_avx512_bf16() && (features().d & all) == all &&
           !syscall(SYS_arch_prctl, request_permission, tile_data);
#else
    return false;
#endif
}
#endif

}  // namespace

const Kernels* find_kernels(const char* name) {
    const auto wanted = [&](const Kernels& kernels) { return !name || !strcmp(name, kernels.name); };
#define TRY(LEVEL) \
    if (wanted(LEVEL) && has_##LEVEL()) return &LEVEL;
#ifdef HAVE_AMX
    TRY(amx)
#endif
#ifdef HAVE_AVX512_BF16
    TRY(avx512_bf16)
#endif
#ifdef HAVE_AVX512_VNNI
    TRY(avx512_vnni)
#endif
#ifdef HAVE_AVX2_VNNI
    TRY(avx2_vnni)
#endif
#ifdef HAVE_AVX2
    TRY(avx2)
#endif
#undef TRY
    return wanted(portable) ? &portable : nullptr;
}

#include "levels.h"

#include <string.h>

#ifdef HAVE_AMX_BF16
#include <cpuid.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif
#endif

// compile.py defines HAVE_ for each level that the compiler could make.
extern const Kernels portable, avx2, avx512, avx512_bf16, amx_bf16;

namespace {

#if defined(__x86_64__)
[[maybe_unused]] bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

[[maybe_unused]] bool has_avx512() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

[[maybe_unused]] bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
#endif

#ifdef HAVE_AMX_BF16
// Linux gives the tiles' registers only to processes that ask for them.
bool has_amx_bf16() {
#ifdef __linux__
    const unsigned bf16 = 1u << 22, tile = 1u << 24;
    const long request_permission = 0x1023, tile_data = 18;
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & bf16) || !(d & tile)) return false;
    return has_avx512_bf16() && !syscall(SYS_arch_prctl, request_permission, tile_data);
#else
    return false;
#endif
}
#endif

}  // namespace

const Kernels* find_kernels(const char* name) {
    const auto wanted = [&](const Kernels& kernels) { return !name || !strcmp(name, kernels.name); };
#ifdef HAVE_AMX_BF16
    if (wanted(amx_bf16) && has_amx_bf16()) return &amx_bf16;
#endif
#ifdef HAVE_AVX512_BF16
    if (wanted(avx512_bf16) && has_avx512_bf16()) return &avx512_bf16;
#endif
#ifdef HAVE_AVX512
    if (wanted(avx512) && has_avx512()) return &avx512;
#endif
#ifdef HAVE_AVX2
    if (wanted(avx2) && has_avx2()) return &avx2;
#endif
    return wanted(portable) ? &portable : nullptr;
}

/* Which instruction sets this machine can run. */
#ifndef LSQ_LEVELS_H
#define LSQ_LEVELS_H

#include "simd.h"

static int lsq_simd_available(int level) {
    if (level == LSQ_PORTABLE) return 1;
#if LSQ_X86
    __builtin_cpu_init();
    if (level == LSQ_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
    if (level == LSQ_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#endif
    return level == LSQ_NEON && LSQ_ARM64;
}

#endif

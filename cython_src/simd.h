/* Which instruction sets this build has bodies for; levels.h tells which of them this machine can run.

   A kernel is one plain C function, written so that compilers vectorize it, and compiled once per
   instruction set by a function attribute: no per-file flags, no -march, no intrinsics to keep in
   step. Integers (and floats without contraction or reordering) make every body give the same bits.

       LSQ_BODIES(name, arguments, call)   makes name_portable, name_avx2, name_avx512, name_neon
*/
#ifndef LSQ_SIMD_H
#define LSQ_SIMD_H

#include <stdint.h>

/* flips.h: rows are padded to a multiple of this, so that its loop has no tail. */
enum { LSQ_LANES = 16 };

enum { LSQ_PORTABLE = 0, LSQ_AVX2 = 1, LSQ_AVX512 = 2, LSQ_NEON = 3, LSQ_LEVELS = 4 };

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define LSQ_X86 1
#define LSQ_TARGET_AVX2 __attribute__((target("avx2,popcnt")))
#if defined(__clang__) /* does not know the width as an attribute, and would ignore all of it; inlining needs popcnt */
#define LSQ_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,popcnt")))
#else
/* 256-bit registers with AVX-512's instructions: passes here are short, wider ones gained nothing. */
#define LSQ_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=256")))
#endif
#else
#define LSQ_X86 0
#endif

#if defined(__aarch64__) || defined(_M_ARM64)
#define LSQ_ARM64 1 /* NEON is part of the ABI's floor: the portable body is the NEON body */
#else
#define LSQ_ARM64 0
#endif

#if defined(__GNUC__) || defined(__clang__)
#define LSQ_INLINE static inline __attribute__((always_inline))
#define LSQ_RESTRICT __restrict__
#else
#define LSQ_INLINE static __forceinline
#define LSQ_RESTRICT __restrict
#endif

/* The place of the lowest bit. */
#if defined(__GNUC__) || defined(__clang__)
#define LSQ_LOWEST(mask) __builtin_ctz(mask)
#else
LSQ_INLINE int lsq_lowest(uint32_t mask) {
    int lane = 0;
    while (!(mask >> lane & 1)) lane++;
    return lane;
}
#define LSQ_LOWEST(mask) lsq_lowest(mask)
#endif

#if LSQ_X86
#define LSQ_BODIES(name, arguments, call)                                    \
    static void name##_portable arguments { name##_body call; }              \
    LSQ_TARGET_AVX2 static void name##_avx2 arguments { name##_body call; }  \
    LSQ_TARGET_AVX512 static void name##_avx512 arguments { name##_body call; } \
    static inline void name(int level, LSQ_UNPACK arguments) {               \
        if (level == LSQ_AVX512) name##_avx512 call;                         \
        else if (level == LSQ_AVX2) name##_avx2 call;                        \
        else name##_portable call;                                           \
    }
#else
#define LSQ_BODIES(name, arguments, call)                                    \
    static void name##_portable arguments { name##_body call; }              \
    static inline void name(int level, LSQ_UNPACK arguments) {               \
        (void)level;                                                         \
        name##_portable call;                                                \
    }
#endif
#define LSQ_UNPACK(...) __VA_ARGS__

#endif

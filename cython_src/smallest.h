/* The smallest of many sums, without sorting them. */
#ifndef LSQ_SMALLEST_H
#define LSQ_SMALLEST_H

#include <stdint.h>
#include <string.h>

#include "hits.h"
#include "simd.h"

/* Sums are compared as distances from `low`: those below it wrap around, and are the largest. */
LSQ_INLINE void lsq_minima_body(const uint16_t *sums, int64_t n, uint16_t low, int64_t groups, uint16_t *minima) {
    for (int64_t j = 0; j < groups; j++) minima[j] = LSQ_LARGEST;
    for (int64_t i = 0; i < n; i += groups) {
        const int64_t some = n - i < groups ? n - i : groups;
        for (int64_t j = 0; j < some; j++) {
            const uint16_t sum = (uint16_t)(sums[i + j] - low);
            minima[j] = sum < minima[j] ? sum : minima[j];
        }
    }
}
LSQ_BODIES(lsq_minima, (const uint16_t *sums, int64_t n, uint16_t low, int64_t groups, uint16_t *minima),
           (sums, n, low, groups, minima))

/* A sum such that at least `want` sums are from `low` to it, and seldom twice as many. (Sums are dealt into groups. Of at
 * least twice `want` groups the smallest sum is found, and of these the one in place `want`.) Less than LSQ_LARGEST, which
 * stands for no sum. `work`: room for n. */
static uint16_t lsq_bound(int level, const uint16_t *sums, int64_t n, uint16_t low, int64_t want, uint16_t *work) {
    int64_t groups = 32;
    while (groups < 2 * want && 2 * groups <= n) groups *= 2;
    if (groups < 2 * want || groups > n) groups = n;
    if (want > n) return LSQ_LARGEST - 1;
    lsq_minima(level, sums, n, low, groups, work);
    const int32_t bound = lsq_kth_sum(work, groups, want) + low;
    return (uint16_t)(bound < LSQ_LARGEST ? bound : LSQ_LARGEST - 1);
}

/* The places of the sums from `low` to `high`, ascending; how many. `places`: room for one more. */
static inline int64_t lsq_within_portable(const uint16_t *sums, int64_t n, uint16_t low, uint16_t high, uint32_t *places) {
    const uint16_t width = (uint16_t)(high - low);
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        places[count] = (uint32_t)i;
        count += (uint16_t)(sums[i] - low) <= width;
    }
    return count;
}

#if LSQ_X86
#include <immintrin.h>

LSQ_TARGET_AVX2 static int64_t lsq_within_avx2(const uint16_t *sums, int64_t n, uint16_t low, uint16_t high, uint32_t *places) {
    const __m256i least = _mm256_set1_epi16((short)low), width = _mm256_set1_epi16((short)(high - low));
    int64_t count = 0, i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i apart = _mm256_sub_epi16(_mm256_loadu_si256((const __m256i *)(sums + i)), least);
        const __m256i within = _mm256_cmpeq_epi16(_mm256_min_epu16(apart, width), apart);
        for (uint32_t mask = (uint32_t)_mm256_movemask_epi8(within) & 0x55555555u; mask; mask &= mask - 1)
            places[count++] = (uint32_t)i + (uint32_t)LSQ_LOWEST(mask) / 2;
    }
    const int64_t rest = lsq_within_portable(sums + i, n - i, low, high, places + count);
    for (int64_t j = 0; j < rest; j++) places[count + j] += (uint32_t)i;
    return count + rest;
}
#endif

static int64_t lsq_within(int level, const uint16_t *sums, int64_t n, uint16_t low, uint16_t high, uint32_t *places) {
#if LSQ_X86
    if (level != LSQ_PORTABLE) return lsq_within_avx2(sums, n, low, high, places);
#endif
    (void)level;
    return lsq_within_portable(sums, n, low, high, places);
}

#endif

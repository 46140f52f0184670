/* exact.h for AVX2 with F16C: 32 lanes in four registers. Included by exact.h alone. */
#ifndef LSQ_EXACT_AVX2_H
#define LSQ_EXACT_AVX2_H

#include <cpuid.h>
#include <immintrin.h>

#define LSQ_TARGET_HALVES __attribute__((target("avx2,f16c")))

static int lsq_has_f16c(void) {
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c >> 29 & 1;
}

LSQ_TARGET_HALVES LSQ_INLINE __m256 lsq_load_eight(int kind, const uint8_t *p, __m256 scale) {
    if (kind == LSQ_FLOAT32) return _mm256_loadu_ps((const float *)p);
    if (kind == LSQ_FLOAT16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
    if (kind == LSQ_SCALED_FLOAT16) return _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), scale);
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))), scale);
}

LSQ_TARGET_HALVES LSQ_INLINE double lsq_add_avx2(const __m256 *lanes) {
    __m256 eight = _mm256_add_ps(_mm256_add_ps(lanes[0], lanes[2]), _mm256_add_ps(lanes[1], lanes[3]));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

LSQ_TARGET_HALVES LSQ_INLINE lsq_pair lsq_sum_avx2(int kind, int metric, const float *q, const uint8_t *numbers, float scale,
                                                   int64_t dim) {
    lsq_pair out = {0, 0};
    uint8_t last[LSQ_WIDE * 4];
    const __m256 scales = _mm256_set1_ps(scale);
    for (int64_t at = 0; at < dim;) {
        __m256 sums[4], squares[4];
        for (int v = 0; v < 4; v++) sums[v] = squares[v] = _mm256_setzero_ps();
        int64_t end = dim - at < LSQ_EXACT_RUN ? dim : at + LSQ_EXACT_RUN;
        for (; at < end; at += LSQ_WIDE) {
            const uint8_t *from = lsq_numbers(kind, numbers, at, dim, last);
            for (int v = 0; v < 4; v++) {
                __m256 x = lsq_load_eight(kind, from + 8 * v * lsq_number_size(kind), scales), to = _mm256_loadu_ps(q + at + 8 * v);
                __m256 y = metric == LSQ_L2 ? _mm256_sub_ps(to, x) : x;
                sums[v] = _mm256_add_ps(sums[v], _mm256_mul_ps(metric == LSQ_L2 ? y : to, y));
                if (metric == LSQ_COSINE) squares[v] = _mm256_add_ps(squares[v], _mm256_mul_ps(x, x));
            }
        }
        out.value += lsq_add_avx2(sums);
        if (metric == LSQ_COSINE) out.square += lsq_add_avx2(squares);
    }
    return out;
}

#endif

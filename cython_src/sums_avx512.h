/* sums.h for AVX-512: two columns at a time, one in each half of a register. Included by sums.h alone, after
   sums_avx2.h, which ends its sums. */
#ifndef LSQ_SUMS_AVX512_H
#define LSQ_SUMS_AVX512_H

#include <immintrin.h>

/* Two columns a register; `nb` blocks side by side share each load of look-ups. */
LSQ_TARGET_AVX512 LSQ_INLINE void lsq_blocks_avx512(const lsq_work *work, const int bits, const int nq, const int nb, int64_t i) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const uint8_t *tables = work->tables;
    int64_t block[2];
    __m512i a[2 * LSQ_GROUP], b[2 * LSQ_GROUP];
    LSQ_UNROLL for (int n = 0; n < nb; n++) block[n] = work->which ? work->which[i + n] : i + n;
    LSQ_UNROLL for (int n = 0; n < nb * nq; n++) a[n] = b[n] = _mm512_setzero_si512();
    const uint8_t *codes[2];
    LSQ_UNROLL for (int n = 0; n < nb; n++) codes[n] = work->codes + block[n] * work->size;
    for (int64_t j = 0; j < work->columns; j += 2, tables += work->stride) {
        __m512i low[2], high[2];
        LSQ_UNROLL for (int n = 0; n < nb; n++) {
            const uint8_t *here = codes[n] + j * LSQ_BLOCK_ROWS;
            LSQ_PREFETCH(here + work->ahead);
            /* The last column has no partner: its half is zero, and looks up zeros. */
            __m512i code = j + 1 < work->columns ? _mm512_loadu_si512(here)
                                                 : _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)here));
            low[n] = _mm512_and_si512(code, nibble);
            high[n] = _mm512_and_si512(_mm512_srli_epi16(code, 4), nibble);
        }
        LSQ_UNROLL for (int q = 0; q < nq; q++) {
            __m512i one = _mm512_loadu_si512(tables + q * LSQ_PAIR), two = _mm512_loadu_si512(tables + q * LSQ_PAIR + 64);
            LSQ_UNROLL for (int n = 0; n < nb; n++) {
                __m512i sum = _mm512_add_epi8(_mm512_shuffle_epi8(one, low[n]), _mm512_shuffle_epi8(two, high[n]));
                const int to = n * nq + q;
                a[to] = bits == 8 ? _mm512_adds_epu8(a[to], sum) : _mm512_add_epi16(a[to], sum);
                if (bits == 16) b[to] = _mm512_add_epi16(b[to], _mm512_srli_epi16(sum, 8));
            }
        }
    }
    LSQ_UNROLL for (int n = 0; n < nb * nq; n++) {
        __m256i a0 = _mm512_castsi512_si256(a[n]), a1 = _mm512_extracti64x4_epi64(a[n], 1);
        __m256i b0 = _mm512_castsi512_si256(b[n]), b1 = _mm512_extracti64x4_epi64(b[n], 1);
        lsq_end_avx2(work, bits, bits == 8 ? _mm256_adds_epu8(a0, a1) : _mm256_add_epi16(a0, a1), _mm256_add_epi16(b0, b1),
                     work->limits[n % nq], work->sums + block[n / nq] * work->apart + n % nq * LSQ_BLOCK_ROWS,
                     work->masks + i * nq + n);
    }
}

#define LSQ_SUMS_AVX512(BITS, NQ)                                                                                      \
    LSQ_TARGET_AVX512 static void lsq_sums##BITS##_avx512_##NQ(const lsq_work *work) {                                 \
        int64_t i = 0, pairs = work->streams ? 0 : work->blocks / 2;                                                   \
        for (; i < 2 * pairs; i += 2) lsq_blocks_avx512(work, BITS, NQ, 2, i);                                         \
        for (; i < work->blocks; i++) lsq_blocks_avx512(work, BITS, NQ, 1, i);                                         \
    }
LSQ_SUMS_AVX512(8, 1)
LSQ_SUMS_AVX512(8, 2)
LSQ_SUMS_AVX512(8, 3)
LSQ_SUMS_AVX512(8, 4)
LSQ_SUMS_AVX512(16, 1)
LSQ_SUMS_AVX512(16, 2)
LSQ_SUMS_AVX512(16, 3)
LSQ_SUMS_AVX512(16, 4)

static void lsq_sums_avx512(const lsq_work *work, int bits, int nq) {
    static const lsq_sums_body bodies[2][LSQ_GROUP] = {LSQ_BY_QUERIES(lsq_sums8_avx512), LSQ_BY_QUERIES(lsq_sums16_avx512)};
    bodies[bits == 16][nq - 1](work);
}

#endif

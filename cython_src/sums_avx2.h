/* sums.h for AVX2: a byte shuffle looks up a nibble of 32 rows. Included by sums.h alone. */
#ifndef LSQ_SUMS_AVX2_H
#define LSQ_SUMS_AVX2_H

#include <immintrin.h>

/* The bodies are written once for any number of queries (and of blocks side by side) and made for each: `bits`, `nq` and
 * `nb` are constants where they are inlined, loops over them vanish, and accumulators stay in registers. */
#define LSQ_UNROLL _Pragma("GCC unroll 8")

/* From the accumulators of one query, of 256 bits, to memory and a mask. */
LSQ_TARGET_AVX2 LSQ_INLINE void lsq_end_avx2(const lsq_work *work, const int bits, __m256i a, __m256i b, uint16_t limit, uint16_t *sums, uint32_t *mask) {
    __m256i *stored = (__m256i *)sums;
    if (bits == 8) {
        __m256i most = _mm256_set1_epi8((char)(limit < 255 ? limit : 255));
        if (work->more) a = _mm256_adds_epu8(a, _mm256_loadu_si256(stored));
        _mm256_storeu_si256(stored, a);
        *mask = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_min_epu8(a, most), a));
        return;
    }
    __m256i most = _mm256_set1_epi16((short)limit), even = _mm256_sub_epi16(a, _mm256_slli_epi16(b, 8)), odd = b;
    if (work->more) {
        const __m128i shift = _mm_cvtsi32_si128(work->shift);
        even = _mm256_add_epi16(even, _mm256_sll_epi16(_mm256_loadu_si256(stored), shift));
        odd = _mm256_add_epi16(odd, _mm256_sll_epi16(_mm256_loadu_si256(stored + 1), shift));
    }
    _mm256_storeu_si256(stored, even);
    _mm256_storeu_si256(stored + 1, odd);
    __m256i near_even = _mm256_cmpeq_epi16(_mm256_min_epu16(even, most), even);
    __m256i near_odd = _mm256_cmpeq_epi16(_mm256_min_epu16(odd, most), odd);
    *mask = (uint32_t)_mm256_movemask_epi8(_mm256_blendv_epi8(near_odd, near_even, _mm256_set1_epi16(255)));
}

LSQ_TARGET_AVX2 LSQ_INLINE void lsq_block_avx2(const lsq_work *work, const int bits, const int nq, int64_t i) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const int64_t block = work->which ? work->which[i] : i;
    const uint8_t *tables = work->tables;
    __m256i a[LSQ_GROUP], b[LSQ_GROUP];
    LSQ_UNROLL for (int q = 0; q < nq; q++) a[q] = b[q] = _mm256_setzero_si256();
    const uint8_t *codes = work->codes + block * work->size;
    for (int64_t j = 0; j < work->columns; j += 2, tables += work->stride, codes += 2 * LSQ_BLOCK_ROWS) {
        LSQ_PREFETCH(codes + work->ahead);
        LSQ_UNROLL for (int c = 0; c < 2; c++) {
            if (j + c == work->columns) break;
            __m256i code = _mm256_loadu_si256((const __m256i *)(codes + c * LSQ_BLOCK_ROWS));
            __m256i low = _mm256_and_si256(code, nibble), high = _mm256_and_si256(_mm256_srli_epi16(code, 4), nibble);
            LSQ_UNROLL for (int q = 0; q < nq; q++) {
                const uint8_t *table = tables + q * LSQ_PAIR + 32 * c;
                __m256i one = _mm256_loadu_si256((const __m256i *)table);
                __m256i two = _mm256_loadu_si256((const __m256i *)(table + 64));
                __m256i sum = _mm256_add_epi8(_mm256_shuffle_epi8(one, low), _mm256_shuffle_epi8(two, high));
                a[q] = bits == 8 ? _mm256_adds_epu8(a[q], sum) : _mm256_add_epi16(a[q], sum);
                if (bits == 16) b[q] = _mm256_add_epi16(b[q], _mm256_srli_epi16(sum, 8));
            }
        }
    }
    LSQ_UNROLL for (int q = 0; q < nq; q++)
        lsq_end_avx2(work, bits, a[q], b[q], work->limits[q], work->sums + block * work->apart + q * LSQ_BLOCK_ROWS,
                     work->masks + i * nq + q);
}

#define LSQ_SUMS_AVX2(BITS, NQ)                                                                                        \
    LSQ_TARGET_AVX2 static void lsq_sums##BITS##_avx2_##NQ(const lsq_work *work) {                                     \
        for (int64_t i = 0; i < work->blocks; i++) lsq_block_avx2(work, BITS, NQ, i);                                  \
    }
LSQ_SUMS_AVX2(8, 1)
LSQ_SUMS_AVX2(8, 2)
LSQ_SUMS_AVX2(8, 3)
LSQ_SUMS_AVX2(8, 4)
LSQ_SUMS_AVX2(16, 1)
LSQ_SUMS_AVX2(16, 2)
LSQ_SUMS_AVX2(16, 3)
LSQ_SUMS_AVX2(16, 4)

typedef void (*lsq_sums_body)(const lsq_work *work);
#define LSQ_BY_QUERIES(name) {name##_1, name##_2, name##_3, name##_4}

static void lsq_sums_avx2(const lsq_work *work, int bits, int nq) {
    static const lsq_sums_body bodies[2][LSQ_GROUP] = {LSQ_BY_QUERIES(lsq_sums8_avx2), LSQ_BY_QUERIES(lsq_sums16_avx2)};
    bodies[bits == 16][nq - 1](work);
}

#endif

/* compare.h for AVX2: four bytes of 32 rows become 32 numbers by unpacking. Included by compare.h alone. */
#ifndef LSQ_COMPARE_AVX2_H
#define LSQ_COMPARE_AVX2_H

#include <immintrin.h>

LSQ_TARGET_AVX2 static void lsq_block_read_avx2(const lsq_block *block, int64_t first, int lanes, lsq_lanes x) {
    for (int i = 0; i < lanes; i++) {
        __m256i bytes[4], words[4], *to = (__m256i *)x[i];
        for (int j = 0; j < 4; j++)
            bytes[j] = _mm256_loadu_si256((const __m256i *)lsq_block_column(block, 4 * (first + i) + j));
        words[0] = _mm256_unpacklo_epi8(bytes[0], bytes[1]); /* the lower half of numbers 0 … 7 and 16 … 23 */
        words[1] = _mm256_unpackhi_epi8(bytes[0], bytes[1]); /* of 8 … 15 and 24 … 31 */
        words[2] = _mm256_unpacklo_epi8(bytes[2], bytes[3]); /* and the upper halves */
        words[3] = _mm256_unpackhi_epi8(bytes[2], bytes[3]);
        __m256i a = _mm256_unpacklo_epi16(words[0], words[2]), b = _mm256_unpackhi_epi16(words[0], words[2]);
        __m256i c = _mm256_unpacklo_epi16(words[1], words[3]), d = _mm256_unpackhi_epi16(words[1], words[3]);
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(a, b, 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(c, d, 0x20));
        _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(a, b, 0x31));
        _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(c, d, 0x31));
    }
}

#endif

/* Sums of quantized look-ups for a run of blocks of 32 rows and up to four queries, and which of them are small enough.

   Byte j of 32 rows lies side by side (rows.h), so one load feeds 32 rows, and a byte shuffle looks up a nibble of all.
   Two look-ups of at most 127 fit a byte. Sums are kept

       in 8 bits    saturating: what is above 254 is too far to matter, and one addition a column is all
       in 16 bits   those of odd rows beside those of all, which are 256 * odd + even: one shift and two additions

   AVX-512 takes two columns at a time, one in each half of a register. All bodies give the same numbers.

   Sums lie in memory as uint16_t[32] a block and query: in 8 bits as 32 bytes in row order, in 16 bits those of the even
   rows before those of the odd ones; lsq_sum_of reads one. */
#ifndef LSQ_SUMS_H
#define LSQ_SUMS_H

#include <stdint.h>

#include "nibbles.h"
#include "rows.h"
#include "simd.h"

#if LSQ_X86
#include <immintrin.h>
#elif LSQ_ARM64
#include <arm_neon.h>
#endif

/* LSQ_RUN: blocks, times queries, summed up in one go. LSQ_AHEAD: so many bytes before they are needed codes are asked for
 * (into the second cache: the first is full of tables and sums). The hardware's own prefetching ends at every page. */
enum { LSQ_GROUP = 4, LSQ_RUN = 128, LSQ_AHEAD = 8192 };

#if defined(__GNUC__) || defined(__clang__)
#define LSQ_PREFETCH(address) __builtin_prefetch(address, 0, 2)
#else
#define LSQ_PREFETCH(address) (void)(address)
#endif

/* What to sum up. Look-ups of query q for pair p of columns are at tables + p * stride + q * LSQ_PAIR. */
typedef struct {
    const uint8_t *codes;    /* block 0 */
    int64_t columns;         /* of a block, from its first on */
    int64_t size;            /* bytes from block to block */
    int64_t blocks;
    const uint32_t *which;   /* the numbers of the blocks, or NULL: 0, 1, 2, … */
    const uint8_t *tables;
    int64_t stride;
    uint16_t *sums;          /* of block 0: LSQ_BLOCK_ROWS for each query */
    int64_t apart;           /* how far apart those of blocks are */
    int more;                /* add to what `sums` hold already */
    int shift;               /* times two to the power of this (in 16 bits) */
    int streams;             /* codes come out of memory: one block after another */
    const uint16_t *limits;  /* of each query */
    uint32_t *masks;         /* (blocks, queries): a bit for each row whose sum is not above the limit */
} lsq_work;

LSQ_INLINE uint16_t lsq_sum_of(const uint16_t *sums, int bits, int lane) {
    return bits == 8 ? ((const uint8_t *)sums)[lane] : sums[(lane & 1) * 16 + lane / 2];
}

/* From the sums of a block's rows to memory and a mask. */
static void lsq_end(const lsq_work *work, int bits, uint16_t *sums, uint16_t *stored, uint32_t *mask, uint16_t limit) {
    *mask = 0;
    for (int r = 0; r < LSQ_BLOCK_ROWS; r++) {
        uint32_t sum = sums[r] + (work->more ? (uint32_t)lsq_sum_of(stored, bits, r) << work->shift : 0u);
        if (bits == 8 && sum > 255) sum = 255;
        sums[r] = (uint16_t)sum;
        *mask |= (uint32_t)(sum <= limit) << r;
    }
    for (int r = 0; r < LSQ_BLOCK_ROWS; r++) {
        if (bits == 8) ((uint8_t *)stored)[r] = (uint8_t)sums[r];
        else stored[(r & 1) * 16 + r / 2] = sums[r];
    }
}

static void lsq_sums_portable(const lsq_work *work, int bits, int nq) {
    for (int64_t at = 0; at < work->blocks * nq; at++) {
        int64_t block = work->which ? work->which[at / nq] : at / nq, q = at % nq;
        uint16_t sums[LSQ_BLOCK_ROWS] = {0}, *stored = work->sums + block * work->apart + q * LSQ_BLOCK_ROWS;
        const uint8_t *tables = work->tables + q * LSQ_PAIR, *codes = work->codes + block * work->size;
        for (int64_t j = 0; j < work->columns; j++, codes += LSQ_BLOCK_ROWS) {
            const uint8_t *table = tables + j / 2 * work->stride + (j & 1) * 32;
            for (int r = 0; r < LSQ_BLOCK_ROWS; r++) sums[r] += (uint16_t)(table[codes[r] & 15] + table[64 + (codes[r] >> 4)]);
            if (bits == 8)
                for (int r = 0; r < LSQ_BLOCK_ROWS; r++) sums[r] = sums[r] < 255 ? sums[r] : 255;
        }
        lsq_end(work, bits, sums, stored, &work->masks[at], work->limits[q]);
    }
}

#if LSQ_X86
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
    const int64_t block = work->which ? work->which[i] : i, ahead = work->which ? 0 : LSQ_AHEAD;
    const uint8_t *tables = work->tables;
    __m256i a[LSQ_GROUP], b[LSQ_GROUP];
    LSQ_UNROLL for (int q = 0; q < nq; q++) a[q] = b[q] = _mm256_setzero_si256();
    const uint8_t *codes = work->codes + block * work->size;
    for (int64_t j = 0; j < work->columns; j += 2, tables += work->stride, codes += 2 * LSQ_BLOCK_ROWS) {
        LSQ_PREFETCH(codes + ahead);
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

/* Two columns a register; `nb` blocks side by side share each load of look-ups. */
LSQ_TARGET_AVX512 LSQ_INLINE void lsq_blocks_avx512(const lsq_work *work, const int bits, const int nq, const int nb, int64_t i) {
    const __m512i nibble = _mm512_set1_epi8(15);
    const uint8_t *tables = work->tables;
    const int64_t ahead = work->which ? 0 : LSQ_AHEAD;
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
            LSQ_PREFETCH(here + ahead);
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

#define LSQ_SUMS(BITS, NQ)                                                                                             \
    LSQ_TARGET_AVX2 static void lsq_sums##BITS##_avx2_##NQ(const lsq_work *work) {                                      \
        for (int64_t i = 0; i < work->blocks; i++) lsq_block_avx2(work, BITS, NQ, i);                                  \
    }                                                                                                                  \
    LSQ_TARGET_AVX512 static void lsq_sums##BITS##_avx512_##NQ(const lsq_work *work) {                                  \
        int64_t i = 0, pairs = work->streams ? 0 : work->blocks / 2;                                                   \
        for (; i < 2 * pairs; i += 2) lsq_blocks_avx512(work, BITS, NQ, 2, i);                                         \
        for (; i < work->blocks; i++) lsq_blocks_avx512(work, BITS, NQ, 1, i);                                         \
    }
LSQ_SUMS(8, 1)
LSQ_SUMS(8, 2)
LSQ_SUMS(8, 3)
LSQ_SUMS(8, 4)
LSQ_SUMS(16, 1)
LSQ_SUMS(16, 2)
LSQ_SUMS(16, 3)
LSQ_SUMS(16, 4)

typedef void (*lsq_sums_body)(const lsq_work *work);
#define LSQ_BY_QUERIES(name) {name##_1, name##_2, name##_3, name##_4}
static const lsq_sums_body lsq_sums_bodies[2][2][LSQ_GROUP] = {
    {LSQ_BY_QUERIES(lsq_sums8_avx2), LSQ_BY_QUERIES(lsq_sums16_avx2)},
    {LSQ_BY_QUERIES(lsq_sums8_avx512), LSQ_BY_QUERIES(lsq_sums16_avx512)},
};
#elif LSQ_ARM64
static void lsq_sums_neon(const lsq_work *work, int bits, int nq) {
    const uint8x16_t nibble = vdupq_n_u8(15);
    for (int64_t at = 0; at < work->blocks * nq; at++) {
        int64_t block = work->which ? work->which[at / nq] : at / nq, q = at % nq;
        uint16x8_t wide[4] = {vdupq_n_u16(0), vdupq_n_u16(0), vdupq_n_u16(0), vdupq_n_u16(0)};
        uint8x16_t narrow[2] = {vdupq_n_u8(0), vdupq_n_u8(0)};
        const uint8_t *tables = work->tables + q * LSQ_PAIR, *codes = work->codes + block * work->size;
        for (int64_t j = 0; j < work->columns; j++, codes += LSQ_BLOCK_ROWS) {
            const uint8_t *table = tables + j / 2 * work->stride + (j & 1) * 32;
            uint8x16_t first = vld1q_u8(table), second = vld1q_u8(table + 64);
            for (int half = 0; half < 2; half++) {
                uint8x16_t code = vld1q_u8(codes + 16 * half);
                uint8x16_t sum = vaddq_u8(vqtbl1q_u8(first, vandq_u8(code, nibble)), vqtbl1q_u8(second, vshrq_n_u8(code, 4)));
                if (bits == 8) {
                    narrow[half] = vqaddq_u8(narrow[half], sum);
                    continue;
                }
                wide[2 * half] = vaddw_u8(wide[2 * half], vget_low_u8(sum));
                wide[2 * half + 1] = vaddw_u8(wide[2 * half + 1], vget_high_u8(sum));
            }
        }
        uint16_t sums[LSQ_BLOCK_ROWS];
        for (int half = 0; bits == 8 && half < 2; half++) {
            wide[2 * half] = vmovl_u8(vget_low_u8(narrow[half]));
            wide[2 * half + 1] = vmovl_u8(vget_high_u8(narrow[half]));
        }
        for (int i = 0; i < 4; i++) vst1q_u16(sums + 8 * i, wide[i]);
        lsq_end(work, bits, sums, work->sums + block * work->apart + q * LSQ_BLOCK_ROWS, &work->masks[at], work->limits[q]);
    }
}
#endif

LSQ_INLINE void lsq_sums(int level, int bits, int nq, const lsq_work *work) {
#if LSQ_X86
    if (level != LSQ_PORTABLE) {
        lsq_sums_bodies[level == LSQ_AVX512][bits == 16][nq - 1](work);
        return;
    }
#elif LSQ_ARM64
    if (level == LSQ_NEON) {
        lsq_sums_neon(work, bits, nq);
        return;
    }
#endif
    lsq_sums_portable(work, bits, nq);
}

#endif

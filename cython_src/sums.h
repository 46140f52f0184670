/* Sums of quantized look-ups for a run of blocks of 32 rows and up to four queries, and which of them are small enough.

   Byte j of 32 rows lies side by side (column.h), so one load feeds 32 rows, and a byte shuffle looks up a nibble of all.
   Two look-ups of at most 127 fit a byte. Sums are kept

       in 8 bits    saturating: what is above 254 is too far to matter, and one addition a column is all
       in 16 bits   those of odd rows beside those of all, which are 256 * odd + even: one shift and two additions

   Here are the portable body and the choice between bodies; those with intrinsics are in sums_<instruction set>.h. All
   give the same numbers.

   Sums lie in memory as uint16_t[32] a block and query: in 8 bits as 32 bytes in row order, in 16 bits those of the even
   rows before those of the odd ones; lsq_sum_of reads one. */
#ifndef LSQ_SUMS_H
#define LSQ_SUMS_H

#include <stdint.h>

#include "column.h"
#include "quantize.h"
#include "simd.h"

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
    int64_t ahead;           /* codes are asked for so many bytes before they are needed; 0 where they are near */
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
#include "sums_avx2.h"
#include "sums_avx512.h"
#elif LSQ_ARM64
#include "sums_neon.h"
#endif

LSQ_INLINE void lsq_sums(int level, int bits, int nq, const lsq_work *work) {
    switch (level) {
#if LSQ_X86
    case LSQ_AVX2: lsq_sums_avx2(work, bits, nq); break;
    case LSQ_AVX512: lsq_sums_avx512(work, bits, nq); break;
#elif LSQ_ARM64
    case LSQ_NEON: lsq_sums_neon(work, bits, nq); break;
#endif
    default: lsq_sums_portable(work, bits, nq);
    }
}

#endif

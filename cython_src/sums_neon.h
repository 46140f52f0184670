/* sums.h for NEON: a table look-up reads a nibble of 16 rows. Included by sums.h alone. */
#ifndef LSQ_SUMS_NEON_H
#define LSQ_SUMS_NEON_H

#include <arm_neon.h>

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

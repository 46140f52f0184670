/* Fields into codes and back: field after field, lowest bit first, no gaps. */
#ifndef LSQ_PACK_H
#define LSQ_PACK_H

#include <stdint.h>

static void lsq_pack(uint8_t *codes, const uint16_t *fields, const uint8_t *widths, int64_t n, int64_t m, int64_t size) {
    for (int64_t row = 0; row < n; row++) {
        const uint16_t *field = fields + row * m;
        uint8_t *code = codes + row * size, *end = code + size;
        uint32_t held = 0, count = 0; /* at most 7 + 16 bits wait at a time */
        for (int64_t j = 0; j < m; j++) {
            held |= ((uint32_t)field[j] & ((1u << widths[j]) - 1u)) << count;
            count += widths[j];
            while (count >= 8) {
                *code++ = (uint8_t)held;
                held >>= 8;
                count -= 8;
            }
        }
        if (code < end) *code = (uint8_t)held;
    }
}

static void lsq_unpack(uint16_t *fields, const uint8_t *codes, const uint8_t *widths, int64_t n, int64_t m, int64_t size) {
    for (int64_t row = 0; row < n; row++) {
        uint16_t *field = fields + row * m;
        const uint8_t *code = codes + row * size;
        uint32_t held = 0, count = 0;
        for (int64_t j = 0; j < m; j++) {
            while (count < widths[j]) {
                held |= (uint32_t)*code++ << count;
                count += 8;
            }
            field[j] = (uint16_t)(held & ((1u << widths[j]) - 1u));
            held >>= widths[j];
            count -= widths[j];
        }
    }
}

#endif

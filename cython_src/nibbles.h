/* Look-ups by nibble: a distance is the sum of two of them for each byte of a code. */
#ifndef LSQ_NIBBLES_H
#define LSQ_NIBBLES_H

#include <stdint.h>
#include <string.h>

#include "fields.h"

/* Look-ups of the two nibbles of a byte. */
enum { LSQ_LOOKUPS = 32 };

/* Look-ups by nibble of one query, (columns, 2, 16), from those by field.
 *
 * A field inside a nibble gives its own look-ups. One that lies across is affine in its bits (layout.linear), so each
 * bit gives its weight, and the field's first look-up goes to the bias. Fields come one after another: those of a
 * nibble that are known so far fill its first 2^bits places, and each field or bit multiplies them. */
static void lsq_nibble_tables(const float *values, const lsq_fields *fields, int64_t columns, float *exact, float *bias) {
    memset(exact, 0, (size_t)columns * LSQ_LOOKUPS * sizeof(float));
    for (int64_t f = 0; f < fields->count; f++) {
        int64_t begin = fields->bits[f], end = fields->bits[f + 1], top = fields->levels[f] - 1;
        const float *table = values + fields->starts[f];
        if (!(begin & 3) && f + 4 <= fields->count && fields->bits[f + 4] - begin == 4) {
            /* Four bits of their own, as nearly all are. The same sums as below, in loops of fixed length. */
            float *to = exact + begin / 4 * 16, two[4], three[8];
            const float *b = values + fields->starts[f + 1], *c = values + fields->starts[f + 2], *d = values + fields->starts[f + 3];
            for (int n = 0; n < 4; n++) two[n] = table[n & 1] + b[n >> 1];
            for (int n = 0; n < 8; n++) three[n] = two[n & 3] + c[n >> 2];
            for (int n = 0; n < 16; n++) to[n] = three[n & 7] + d[n >> 3];
            f += 3;
            continue;
        }
        if (begin / 4 == (end - 1) / 4) {
            float *to = exact + begin / 4 * 16;
            int known = 1 << (begin & 3);
            for (int64_t number = ((int64_t)1 << (end - begin)) - 1; number >= 0; number--)
                for (int n = 0; n < known; n++) to[number * known + n] = to[n] + table[number < top ? number : top];
            continue;
        }
        *bias += table[0];
        for (int64_t bit = begin; bit < end; bit++) {
            float weight = table[(int64_t)1 << (bit - begin)] - table[0];
            float *to = exact + bit / 4 * 16;
            int known = 1 << (bit & 3);
            for (int n = 0; n < known; n++) to[known + n] = to[n] + weight;
        }
    }
    /* Bits after the last field count for nothing. */
    int64_t end = fields->bits[fields->count], known = (int64_t)1 << (end & 3);
    if (end & 3)
        for (int64_t n = known; n < 16; n++) exact[end / 4 * 16 + n] = exact[end / 4 * 16 + n % known];
}

#endif

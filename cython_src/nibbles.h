/* Look-ups by nibble: a distance is a sum of them, exactly in float32, or quickly in bytes.

   Quantized, a look-up is a whole number of steps above the least one of its nibble, so that

       distance = base + step * (sum of quantized look-ups) + what rounding took

   and sums of rows can be compared 32 at a time (sums.h). Rounded down (`LSQ_DOWN`) they are lower bounds, and what
   rounding took is at most `loss` steps; rounded to the nearest they are not, but closer. */
#ifndef LSQ_NIBBLES_H
#define LSQ_NIBBLES_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "simd.h"

/* Two quantized look-ups are added as bytes: none is above LSQ_QUANTUM. LSQ_LOOKUPS: those of a column's two nibbles. */
enum { LSQ_QUANTUM = 127, LSQ_LOOKUPS = 32, LSQ_PAIR = 128 };

/* The fields of a code; see encoders/layout.py. */
typedef struct {
    int64_t count;
    const int64_t *starts; /* of each field's look-ups */
    const int64_t *bits;   /* where each field begins in the row, and its end at [count] */
    const int64_t *levels;
} lsq_fields;

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

/* How the look-ups of one query are quantized. */
typedef struct {
    double base; /* the sum of the least look-ups, and the bias */
    double step;
    double loss;  /* what rounding down takes at most, in steps */
    double slack; /* what float32 takes from an exact distance at most, in steps */
} lsq_scale;

LSQ_INLINE void lsq_least_body(const float *exact, int64_t nibbles, float *low, float *high) {
    for (int64_t i = 0; i < nibbles; i++) {
        float least = exact[i * 16], most = least;
        for (int n = 1; n < 16; n++) {
            float value = exact[i * 16 + n];
            least = value < least ? value : least;
            most = value > most || value != value ? value : most; /* what is not a number stays */
        }
        low[i] = least;
        high[i] = most;
    }
}
LSQ_BODIES(lsq_least, (const float *exact, int64_t nibbles, float *low, float *high), (exact, nibbles, low, high))

/* Where the look-ups of the first columns are much wider than others (a row scalar, the strongest dimensions), these have
 * two bytes: steps can be as fine as the others allow, and sums as 16 bits do. */
enum { LSQ_WIDE_COLUMNS = 4, LSQ_WIDE_BITS = 7 };

/* The finest step if the first `wide` columns have two bytes; `high` - `low`: how far apart the look-ups of a nibble are. */
static double lsq_finest_step(const float *low, const float *high, int64_t nibbles, int64_t wide) {
    double narrow = 0, widest = 0, total = 0;
    for (int64_t i = 0; i < nibbles; i++) {
        double range = (double)high[i] - low[i];
        total += range;
        if (i < 2 * wide && range > widest) widest = range;
        if (i >= 2 * wide && range > narrow) narrow = range;
    }
    double step = narrow / LSQ_QUANTUM, least = total / (65535.0 - (double)nibbles);
    if (widest / ((LSQ_QUANTUM << LSQ_WIDE_BITS) + LSQ_QUANTUM) > step) step = widest / ((LSQ_QUANTUM << LSQ_WIDE_BITS) + LSQ_QUANTUM);
    if (least > step) step = least;
    return step > 0 ? step : 1;
}

/* How many columns are worth two bytes: a pass over them costs little, evaluating rows that cannot be told apart much. */
static int64_t lsq_wide_columns(const float *low, const float *high, int64_t nibbles, int64_t most) {
    if (most > LSQ_WIDE_COLUMNS) most = LSQ_WIDE_COLUMNS;
    double finest = lsq_finest_step(low, high, nibbles, most);
    if (!(finest < 0.67 * lsq_finest_step(low, high, nibbles, 0))) return 0;
    int64_t wide = 1;
    while (wide < most && lsq_finest_step(low, high, nibbles, wide) > 1.25 * finest) wide++;
    return wide;
}

/* The scale of one query for such steps. */
static lsq_scale lsq_make_scale(const float *low, const float *high, int64_t nibbles, float bias, double step) {
    double base = bias, size = fabs(base);
    for (int64_t i = 0; i < nibbles; i++) {
        base += low[i];
        size += fabs(low[i]) > fabs(high[i]) ? fabs(low[i]) : fabs(high[i]);
    }
    /* A distance is fewer than nibbles / 2 + 4 additions one after another, each rounded by half an epsilon at most of
     * what all look-ups may come to; one more step for rounding here. Where sums may leave float32, or are not numbers,
     * nothing bounds them. */
    lsq_scale scale = {base, step, 0, INFINITY};
    if (size < FLT_MAX / 2) scale.slack = 1 + ((double)nibbles / 2 + 4) * FLT_EPSILON * size / step;
    return scale;
}

/* Look-ups in whole steps, rounded down after adding `half`, at most `top`; the loss of rounding down. */
LSQ_INLINE void lsq_quantize_body(const float *exact, const float *low, int64_t nibbles, double step, double half, double top,
                                  uint16_t *out, double *loss) {
    double lost = 0;
    for (int64_t i = 0; i < nibbles; i++) {
        double most = 0;
        for (int n = 0; n < 16; n++) {
            double value = ((double)exact[i * 16 + n] - low[i]) / step + half;
            value = value < top ? value : top; /* so too where look-ups are not finite */
            int whole = (int)value;
            double rest = value - whole;
            most = rest > most ? rest : most;
            out[i * 16 + n] = (uint16_t)whole;
        }
        lost += most;
    }
    *loss = lost;
}
LSQ_BODIES(lsq_quantize,
           (const float *exact, const float *low, int64_t nibbles, double step, double half, double top, uint16_t *out, double *loss),
           (exact, low, nibbles, step, half, top, out, loss))

/* Quantized look-ups (columns, 2, 16) as sums.h reads them: columns two by two, 128 bytes a pair, `stride` bytes apart:
 * the low nibbles' of both, each twice, then the high nibbles'. A column without a partner has one that is all zero. Of
 * each look-up the bits from `shift` on, as many as `mask` has. */
static void lsq_spread(const uint16_t *lookups, int64_t columns, int shift, int mask, uint8_t *out, int64_t stride) {
    for (int64_t j = 0; j < columns; j++) {
        uint8_t *to = out + j / 2 * stride + (j & 1) * 32;
        for (int half = 0; half < 2; half++) {
            uint8_t bytes[16];
            for (int n = 0; n < 16; n++) bytes[n] = (uint8_t)(lookups[j * LSQ_LOOKUPS + 16 * half + n] >> shift & mask);
            memcpy(to + 64 * half, bytes, 16);
            memcpy(to + 64 * half + 16, bytes, 16);
        }
    }
    if (columns & 1) {
        memset(out + columns / 2 * stride + 32, 0, 32);
        memset(out + columns / 2 * stride + 96, 0, 32);
    }
}

#endif

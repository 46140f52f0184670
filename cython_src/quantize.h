/* Look-ups by nibble, quantized to bytes, so that sums of 32 rows can be compared at a time (sums.h).

   A quantized look-up is a whole number of steps above the smallest look-up of its nibble, so that

       distance = base + step * (sum of quantized look-ups) + what rounding took

   Rounded down, sums are lower bounds, and rounding takes at most `loss` steps. Rounded to the nearest they are closer to
   the distance, but no bounds. */
#ifndef LSQ_QUANTIZE_H
#define LSQ_QUANTIZE_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "codes.h"
#include "nibbles.h"
#include "simd.h"

/* Two quantized look-ups are added as bytes: none is above LSQ_QUANTUM. LSQ_PAIR: bytes of those of two columns. */
enum { LSQ_QUANTUM = 127, LSQ_PAIR = 128 };

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

/* Pairs of columns; those of the head come first. */
LSQ_INLINE int64_t lsq_head_pairs(const lsq_codes *codes) { return (codes->head + 1) / 2; }
/* And after those of the tail the upper bytes of wide ones. */
LSQ_INLINE int64_t lsq_own_pairs(const lsq_codes *codes) { return lsq_head_pairs(codes) + (codes->width - codes->head + 1) / 2; }
LSQ_INLINE int64_t lsq_pairs(const lsq_codes *codes) { return lsq_own_pairs(codes) + LSQ_WIDE_COLUMNS / 2; }

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

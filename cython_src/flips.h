/* The code of a vector under a binary linear code: a short tabu search over bit flips.

   x ≈ Vᵀh with h in {−1, +1}^m; minimize E(h) = hᵀGh − 2bᵀh with G = VVᵀ, b = Vx. Flipping bit j
   changes E by 4·gain_j with

       gain_j = h_j·(b_j − Σ_i G_ji·h_i) + G_jj

   Each step flips the bit of least gain, even if it makes E worse, except the few flipped last
   (tenure); the best local optimum met is kept. One step is one pass over m numbers that updates
   all gains and finds the next flip. Coordinate descent is the start of it; going on past the first
   optimum is what brings the error close to the rate–distortion bound.

   Fixed point: the caller scales G so that each row's absolute sum is below 2^28 and clips the start's
   residual at 2^29, so no sum leaves int32. The low bits of a compared gain carry its index: the minimum is unique,
   and equal on every instruction set. */
#ifndef LSQ_FLIPS_H
#define LSQ_FLIPS_H

#include "simd.h"
#include <string.h>

enum { LSQ_TENURE = 5 };

/* sign[i] is 0 for +1 and −1 for −1, so (v ^ sign) − sign is v·h. Padding has penalty INT32_MAX. */
LSQ_INLINE int32_t lsq_flip_pass(int32_t *LSQ_RESTRICT gain, const int32_t *LSQ_RESTRICT g,
                                 const int32_t *LSQ_RESTRICT sign, const int32_t *LSQ_RESTRICT penalty,
                                 int32_t flipped, int32_t low, int32_t stride) {
    int32_t best = INT32_MAX;
    const int32_t count = stride & ~(LSQ_LANES - 1); /* tells the compiler that there is no tail */
    for (int32_t i = 0; i < count; i++) {
        int32_t s = sign[i] ^ flipped;
        int32_t v = gain[i] + ((g[i] ^ s) - s);
        gain[i] = v;
        int32_t key = (v & ~low) | i;
        key = key > penalty[i] ? key : penalty[i];
        best = key < best ? key : best;
    }
    return best;
}

/* bits: n × m of 0/1, in: the start, out: the code. r: n × m, b − Gh of the start. g2: twice G, each row
   padded with zeros to stride, a multiple of LSQ_LANES, and a row of zeros at the end. diagonal: G_jj.
   work: 4 × stride. low: 2^k − 1 ≥ stride − 1. */
LSQ_INLINE void lsq_flips_body(uint8_t *bits, const int32_t *r, const int32_t *g2, const int32_t *diagonal,
                               int32_t *work, int64_t n, int32_t m, int32_t stride, int32_t steps, int32_t low) {
    int32_t *gain = work, *sign = work + stride, *best_sign = work + 2 * stride, *penalty = work + 3 * stride;
    for (int64_t row = 0; row < n; row++) {
        uint8_t *code = bits + row * m;
        for (int32_t i = 0; i < stride; i++) {
            sign[i] = i < m ? (int32_t)code[i] - 1 : 0;
            gain[i] = i < m ? (r[row * m + i] ^ sign[i]) - sign[i] + diagonal[i] : 0;
            penalty[i] = i < m ? INT32_MIN : INT32_MAX;
        }
        int32_t recent[LSQ_TENURE], at = 0;
        for (int32_t t = 0; t < LSQ_TENURE; t++) recent[t] = -1;
        int64_t error = 0, best_error = 0;
        memcpy(best_sign, sign, sizeof(int32_t) * (size_t)m);
        /* A pass over the row of zeros changes no gain and finds the first flip. */
        int32_t key = lsq_flip_pass(gain, g2 + (int64_t)m * stride, sign, penalty, 0, low, stride);
        for (int32_t step = 0; step < steps && key != INT32_MAX; step++) {
            int32_t j = key & low;
            int32_t change = gain[j];
            if (change >= 0 && error < best_error) {
                best_error = error;
                memcpy(best_sign, sign, sizeof(int32_t) * (size_t)m);
            }
            if (recent[at] >= 0) penalty[recent[at]] = INT32_MIN;
            recent[at] = j;
            at = at + 1 == LSQ_TENURE ? 0 : at + 1;
            penalty[j] = INT32_MAX;
            error += change;
            int32_t flipped = sign[j];
            key = lsq_flip_pass(gain, g2 + (int64_t)j * stride, sign, penalty, flipped, low, stride);
            gain[j] = -change;
            sign[j] = ~flipped;
        }
        const int32_t *found = error < best_error ? sign : best_sign;
        for (int32_t i = 0; i < m; i++) code[i] = (uint8_t)(found[i] + 1);
    }
}

LSQ_BODIES(lsq_flips,
           (uint8_t *bits, const int32_t *r, const int32_t *g2, const int32_t *diagonal, int32_t *work, int64_t n,
            int32_t m, int32_t stride, int32_t steps, int32_t low),
           (bits, r, g2, diagonal, work, n, m, stride, steps, low))

#endif

/* The code of a vector under an n-ary linear code: cyclic coordinate descent (notes: paper, 2.2.1).

   x ≈ Vᵀθ(k), θ(k) = −1 + 2k/(n−1). With G = VVᵀ and the residual r = b − Gθ, the best level of
   dimension j, all others fixed, is the one nearest to θ(k_j) + r_j / G_jj. A dimension that stays
   costs nothing more; one that moves costs one pass over r. Stops after a sweep without a move.

   Plain mul and sub in a fixed order, compiled without contraction: every body gives the same bits. */
#ifndef LSQ_DESCEND_H
#define LSQ_DESCEND_H

#include "simd.h"
#include <math.h>

/* levels: n × m, in: the start, out: the code. r: n × m, in: b − Gθ(start), overwritten. */
LSQ_INLINE void lsq_descend_body(uint16_t *levels, float *r, const float *g, int64_t n, int32_t m, int32_t count,
                                 int32_t sweeps) {
    const float step = 2.0f / (float)(count - 1), per_step = (float)(count - 1) / 2.0f;
    for (int64_t row = 0; row < n; row++) {
        uint16_t *code = levels + row * m;
        float *LSQ_RESTRICT left = r + row * m;
        for (int32_t sweep = 0; sweep < sweeps; sweep++) {
            int32_t moves = 0;
            for (int32_t j = 0; j < m; j++) {
                const float *LSQ_RESTRICT gj = g + (int64_t)j * m;
                if (!(gj[j] > 0.0f)) continue;
                float now = (float)code[j];
                float wish = floorf(now + left[j] / gj[j] * per_step + 0.5f);
                wish = wish < 0.0f ? 0.0f : wish > (float)(count - 1) ? (float)(count - 1) : wish;
                if (wish == now) continue;
                float move = (wish - now) * step;
                for (int32_t i = 0; i < m; i++) left[i] -= move * gj[i];
                code[j] = (uint16_t)wish;
                moves++;
            }
            if (!moves) break;
        }
    }
}

LSQ_BODIES(lsq_descend,
           (uint16_t *levels, float *r, const float *g, int64_t n, int32_t m, int32_t count, int32_t sweeps),
           (levels, r, g, n, m, count, sweeps))

#endif

/* The first guess of a binary code: decision feedback, strongest bit first.

   With G + noise·I = LᵀL, L lower triangular, ‖y − Vᵀh‖² + noise‖h‖² = ‖c − Lh‖² + a constant, c = L⁻ᵀVy. Row j
   of L knows the bits before j only, so each bit is the sign of what the bits before it leave, the
   bits after it counted as unknown (not as zero). The noise term says how much these may still mend.

   Only sums of ±numbers in a fixed order: every body gives the same bits. */
#ifndef LSQ_FEEDBACK_H
#define LSQ_FEEDBACK_H

#include "simd.h"

/* bits: n × m, out. c: n × m, in: L⁻ᵀVy, out: c − Lh. columns: m × m, row j = column j of L. */
LSQ_INLINE void lsq_feedback_body(uint8_t *bits, float *c, const float *columns, int64_t n, int32_t m) {
    for (int64_t row = 0; row < n; row++) {
        float *LSQ_RESTRICT left = c + row * m;
        for (int32_t j = 0; j < m; j++) {
            const float *LSQ_RESTRICT column = columns + (int64_t)j * m;
            /* A branch: most signs are foreseen, and the next bits need not wait for this one. */
            if (left[j] >= 0.0f) {
                bits[row * m + j] = 1;
                for (int32_t i = j; i < m; i++) left[i] -= column[i];
            } else {
                bits[row * m + j] = 0;
                for (int32_t i = j; i < m; i++) left[i] += column[i];
            }
        }
    }
}

LSQ_BODIES(lsq_feedback, (uint8_t *bits, float *c, const float *columns, int64_t n, int32_t m),
           (bits, c, columns, n, m))

#endif

/* Vectors to the bits of a linear code and their row scalar, all steps in one call (encoders/lsq.py):

       x ─▶ x − mean ─▶ principal axes ─▶ decision feedback ─▶ flip search ─▶ bits ─▶ scalar

   Some rows at a time, so that what is between the steps stays in the cache. A row's result depends on that row alone:
   products and sums have one order, and there is no contraction. */
#ifndef LSQ_BITS_H
#define LSQ_BITS_H

#include <math.h>
#include <string.h>

#include "feedback.h"
#include "flips.h"
#include "product.h"

/* Rows at a time. */
enum { LSQ_BITS_ROWS = 64 };

/* Residuals are clipped here; see flips.h. */
#define LSQ_BITS_MOST 536870912.0f

typedef struct {
    int64_t dim, d, m; /* of vectors, of the principal axes, of the code */
    int32_t stride, steps, low; /* of the flip search */
    const float *mean, *to_axes, *to_targets, *columns, *to_residual; /* but for mean and columns packed: product.h */
    const int32_t *twice, *diagonal;
    float noise, scale;
    /* The scalar, of so many levels; 0: none. to_coded: the columns of V, and what the bits tell of the scalar. */
    int32_t levels, learned;
    const float *to_coded, *rho, *shift;
    float rho_rest, below, lowest, step;
} lsq_bits;

/* Floats of the work space. */
LSQ_INLINE int64_t lsq_bits_work(const lsq_bits *own) {
    return LSQ_BITS_ROWS * (own->dim + 2 * own->d + 1 + 2 * own->m) + 4 * own->stride;
}

/* a·b in eight sums, which are added pair by pair: the same bits whether eight are added at once or one. */
LSQ_INLINE float lsq_inner(const float *a, const float *b, int64_t n) {
    float sums[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; lane++) sums[lane] += a[i + lane] * b[i + lane];
    for (int lane = 0; i < n; i++, lane++) sums[lane] += a[i] * b[i];
    for (int half = 4; half; half /= 2)
        for (int lane = 0; lane < half; lane++) sums[lane] += sums[lane + half];
    return sums[0];
}

/* The scalar's step; *longer is set where the row is too long for it (encoders/lsq_scalar.py). */
LSQ_INLINE uint16_t lsq_bits_scalar(const lsq_bits *own, const float *centred, float *projected, const float *coded,
                                    uint8_t *longer) {
    const int64_t d = own->d;
    const float told = coded[d], size = lsq_inner(coded, coded, d), least = size - own->below;
    float exact = size;
    if (own->learned) {
        const float whole = lsq_inner(centred, centred, own->dim);
        float rest = whole - lsq_inner(projected, projected, d);
        rest = rest > 0 ? rest : 0;
        float sums[8] = {0};
        for (int64_t i = 0; i < d; i++)
            sums[i & 7] += (own->shift[i] + own->rho[i] * projected[i]) * (projected[i] - coded[i]);
        for (int half = 4; half; half /= 2)
            for (int lane = 0; lane < half; lane++) sums[lane] += sums[lane + half];
        exact = whole - 2 * (sums[0] + own->rho_rest * rest);
    }
    const float most = (float)(own->levels - 1), top = told + own->lowest + own->step * most;
    *longer = least > top + own->step / 2;
    if (!(own->step > 0)) return 0;
    float at = rintf(((exact > least ? exact : least) - told - own->lowest) / own->step);
    at = at > 0 ? at : 0;
    return (uint16_t)(at < most ? at : most);
}

/* vectors: n × dim. fields: n × m of 0 and 1, or n × (1 + m), the scalar first; longer: n flags, where there is one. */
static void lsq_bits_of(int level, const lsq_bits *own, const float *vectors, int64_t n, uint16_t *fields,
                        uint8_t *longer, float *work) {
    const int64_t dim = own->dim, d = own->d, m = own->m, width = m + (own->levels > 0);
    float *centred = work, *projected = centred + LSQ_BITS_ROWS * dim, *left = projected + LSQ_BITS_ROWS * d;
    float *residual = left + LSQ_BITS_ROWS * m, *coded = residual + LSQ_BITS_ROWS * m;
    int32_t *flip_work = (int32_t *)(coded + LSQ_BITS_ROWS * (d + 1));
    for (int64_t first = 0; first < n; first += LSQ_BITS_ROWS) {
        const int64_t rows = n - first < LSQ_BITS_ROWS ? n - first : LSQ_BITS_ROWS;
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < dim; i++)
                centred[row * dim + i] = vectors[(first + row) * dim + i] - own->mean[i];
        lsq_product(level, centred, own->to_axes, rows, dim, d, projected);
        lsq_product(level, projected, own->to_targets, rows, d, m, left);
        /* The bits are where codes will be: a byte each, and none of them is read once it is written over. */
        uint8_t *bits = (uint8_t *)(fields + first * width);
        lsq_feedback(level, bits, left, own->columns, rows, (int32_t)m);
        lsq_product(level, left, own->to_residual, rows, m, m, residual);
        int32_t *fixed = (int32_t *)left;
        for (int64_t i = 0; i < rows * m; i++) {
            float value = rintf((residual[i] + own->noise * (2 * (float)bits[i] - 1)) * own->scale);
            value = value > -LSQ_BITS_MOST ? value : -LSQ_BITS_MOST;
            fixed[i] = (int32_t)(value < LSQ_BITS_MOST ? value : LSQ_BITS_MOST);
        }
        lsq_flips(level, bits, fixed, own->twice, own->diagonal, flip_work, rows, (int32_t)m, own->stride, own->steps,
                  own->low);
        if (own->levels) {
            float *values = residual;
            for (int64_t i = 0; i < rows * m; i++) values[i] = 2 * (float)bits[i] - 1;
            lsq_product(level, values, own->to_coded, rows, m, d + 1, coded);
        }
        for (int64_t row = rows - 1; row >= 0; row--) {
            uint16_t *to = fields + (first + row) * width + (width - m);
            for (int64_t i = m - 1; i >= 0; i--) to[i] = bits[row * m + i];
        }
        for (int64_t row = 0; own->levels && row < rows; row++)
            fields[(first + row) * width] = lsq_bits_scalar(own, centred + row * dim, projected + row * d,
                                                            coded + row * (d + 1), longer + first + row);
    }
}

#endif

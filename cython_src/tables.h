/* Look-up tables of a linear code: a query costs one product with the code's rows, and the rest is known beforehand.

   Look-up l of dimension j, θ_l uniform in [-1, 1], and those of the row scalar, which come first:

       values   frontier * known - θ_l * x_j          scalar: frontier * known

   where x = rows · q. encoders/linear_tables.py and encoders/lsq_length.py tell what is known, and why; the cases are

       l2       x of 2 (q - centre), and the bias is ‖q - centre‖² + constant
       unit     x divided by ‖q‖; the last row of the matrix is for the bias: constant - x_m
       ip       the same without a division; or, where codes have lengths, x times `length`, and the frontier of the query
                is q·mean + spread * ‖x‖

   Sums are in the order of product.h, and squares in double: a query has the same tables alone and among others. */
#ifndef LSQ_TABLES_H
#define LSQ_TABLES_H

#include <math.h>
#include <stdint.h>

#include "product.h"

typedef struct {
    int64_t dim, m, levels;
    int64_t steps;       /* look-ups of the row scalar */
    int64_t rows;        /* of the matrix: m, then that of the bias, then that of the frontier */
    const float *packed; /* the matrix; see product.h */
    const float *centre; /* subtracted from the query, or NULL */
    const float *known;  /* of all look-ups */
    const float *theta;
    int unit;            /* only the direction of a query counts */
    float constant, frontier, length, spread;
} lsq_linear;

/* So many queries share the loads of the matrix. */
enum { LSQ_TABLES_AT_ONCE = 16 };

LSQ_INLINE int64_t lsq_lookups_of(const lsq_linear *linear) { return linear->steps + linear->m * linear->levels; }

/* Floats of the work space for the tables of n queries. */
LSQ_INLINE int64_t lsq_tables_work(const lsq_linear *linear, int64_t n) {
    return (n < LSQ_TABLES_AT_ONCE ? n : LSQ_TABLES_AT_ONCE) * (linear->rows + (linear->centre ? linear->dim : 0));
}

/* The look-ups of one query from its products `x`, which are scaled in place. */
static void lsq_tables_write(const lsq_linear *linear, const float *query, float *x, float *values, float *bias) {
    const int64_t m = linear->m, levels = linear->levels;
    float frontier = linear->frontier, divisor = 1;
    if (linear->rows > m + 1) {
        double square = 0;
        for (int64_t j = 0; j < m; j++) square += (double)x[j] * x[j];
        frontier = (float)(x[m + 1] + (double)linear->spread * sqrt(square));
    }
    if (linear->unit) {
        double square = 0;
        for (int64_t i = 0; i < linear->dim; i++) square += (double)query[i] * query[i];
        if (square > 0) divisor = (float)sqrt(square);
    }
    for (int64_t j = 0; j < linear->rows; j++) x[j] = x[j] * linear->length / divisor;
    if (linear->rows > m + 1) *bias = -frontier - x[m];
    else if (linear->rows > m) *bias = linear->constant - x[m];
    const float *known = linear->known;
    for (int64_t s = 0; s < linear->steps; s++) *values++ = frontier * *known++;
    if (levels == 2) {
        for (int64_t j = 0; j < m; j++) {
            values[2 * j] = frontier * known[2 * j] + x[j];
            values[2 * j + 1] = frontier * known[2 * j + 1] - x[j];
        }
        return;
    }
    for (int64_t j = 0; j < m; j++)
        for (int64_t l = 0; l < levels; l++) *values++ = frontier * *known++ - linear->theta[l] * x[j];
}

/* The tables of n queries: values (n, lsq_lookups_of) and bias (n). `work`: lsq_tables_work floats. */
static void lsq_tables_of(int level, const lsq_linear *linear, const float *queries, int64_t n, float *values, float *bias,
                          float *work) {
    const int64_t dim = linear->dim, width = lsq_lookups_of(linear);
    for (int64_t first = 0; first < n; first += LSQ_TABLES_AT_ONCE) {
        int64_t some = n - first < LSQ_TABLES_AT_ONCE ? n - first : LSQ_TABLES_AT_ONCE;
        const float *own = queries + first * dim, *multiplied = own;
        if (linear->centre) {
            float *centred = work + some * linear->rows;
            for (int64_t i = 0; i < some; i++) {
                double square = 0;
                for (int64_t at = 0; at < dim; at++) {
                    float apart = own[i * dim + at] - linear->centre[at];
                    square += (double)apart * apart;
                    centred[i * dim + at] = 2 * apart;
                }
                bias[first + i] = (float)square + linear->constant;
            }
            multiplied = centred;
        }
        lsq_product(level, multiplied, linear->packed, some, dim, linear->rows, work);
        for (int64_t i = 0; i < some; i++)
            lsq_tables_write(linear, own + i * dim, work + i * linear->rows, values + (first + i) * width, &bias[first + i]);
    }
}

#endif

/* Which centres are nearest to a vector, and which of them is the best second home for it.

   Products with all centres (product.h) rank them; of the best few the distances are then computed number by number. A
   product of long vectors may lose the difference of two near centres, these distances do not.

   Where a row is stored twice, its second cell should not be the second nearest, which misses the row for the same
   queries as the nearest one does. SOAR (Sun et al., 2023) takes the centre c' that minimizes

       ‖x − c'‖² + (r·(x − c'))² / ‖r‖²,   r = x − c the residual of the nearest centre c

   so that the second residual is as orthogonal to the first as it can be. */
#ifndef LSQ_ASSIGN_H
#define LSQ_ASSIGN_H

#include <math.h>

#include "product.h"

/* Sums of long loops are kept in so many parts, each in order: compilers vectorize them, and all bodies give the same. */
enum { LSQ_ASSIGN_LANES = 16, LSQ_ASSIGN_ROWS = 64 };

LSQ_INLINE float lsq_lane_sum(const float *sums) {
    float total = 0;
    for (int l = 0; l < LSQ_ASSIGN_LANES; l++) total += sums[l];
    return total;
}

/* squares[i] = ‖x − centre labels[i]‖². */
LSQ_INLINE void lsq_apart_body(const float *x, const float *centres, const uint32_t *labels, int64_t k, int64_t dim,
                               float *squares) {
    for (int64_t i = 0; i < k; i++) {
        const float *c = centres + (int64_t)labels[i] * dim;
        float sums[LSQ_ASSIGN_LANES] = {0};
        int64_t at = 0;
        for (; at + LSQ_ASSIGN_LANES <= dim; at += LSQ_ASSIGN_LANES)
            for (int l = 0; l < LSQ_ASSIGN_LANES; l++) {
                float d = x[at + l] - c[at + l];
                sums[l] += d * d;
            }
        for (int l = 0; at + l < dim; l++) {
            float d = x[at + l] - c[at + l];
            sums[l] += d * d;
        }
        squares[i] = lsq_lane_sum(sums);
    }
}
LSQ_BODIES(lsq_apart, (const float *x, const float *centres, const uint32_t *labels, int64_t k, int64_t dim, float *squares),
           (x, centres, labels, k, dim, squares))

/* products[i] = r·(x − centre labels[i]), r = x − centre labels[0]. */
LSQ_INLINE void lsq_along_body(const float *x, const float *centres, const uint32_t *labels, int64_t k, int64_t dim,
                               float *products) {
    const float *first = centres + (int64_t)labels[0] * dim;
    for (int64_t i = 0; i < k; i++) {
        const float *c = centres + (int64_t)labels[i] * dim;
        float sums[LSQ_ASSIGN_LANES] = {0};
        int64_t at = 0;
        for (; at + LSQ_ASSIGN_LANES <= dim; at += LSQ_ASSIGN_LANES)
            for (int l = 0; l < LSQ_ASSIGN_LANES; l++) sums[l] += (x[at + l] - first[at + l]) * (x[at + l] - c[at + l]);
        for (int l = 0; at + l < dim; l++) sums[l] += (x[at + l] - first[at + l]) * (x[at + l] - c[at + l]);
        products[i] = lsq_lane_sum(sums);
    }
}
LSQ_BODIES(lsq_along, (const float *x, const float *centres, const uint32_t *labels, int64_t k, int64_t dim, float *products),
           (x, centres, labels, k, dim, products))

/* Insert a centre into the k best, which are sorted by value and then by number; a value that is no number comes last.
 * Centres are offered in ascending order. */
LSQ_INLINE int64_t lsq_insert(uint32_t *labels, float *values, int64_t count, int64_t k, uint32_t label, float value) {
    if (value != value) value = INFINITY;
    if (count == k && !(value < values[k - 1])) return count;
    int64_t at = count < k ? count : k - 1;
    for (; at > 0 && values[at - 1] > value; at--) {
        values[at] = values[at - 1];
        labels[at] = labels[at - 1];
    }
    values[at] = value;
    labels[at] = label;
    return count < k ? count + 1 : k;
}

/* The k ≤ m nearest centres of each of n ≤ LSQ_ASSIGN_ROWS rows, nearest first. halves: ‖c‖²/2; scores: room for n × m;
 * work: room for k labels. */
static void lsq_nearest_centres(int level, const float *rows, int64_t n, int64_t dim, const float *centres,
                                const float *packed, const float *halves, int64_t m, int64_t k, float *scores,
                                uint32_t *work, uint32_t *labels, float *squares) {
    lsq_product(level, rows, packed, n, dim, m, scores);
    for (int64_t i = 0; i < n; i++, rows += dim, scores += m, labels += k, squares += k) {
        int64_t count = 0;
        float worst = INFINITY;
        for (int64_t j = 0; j < m; j++) {
            float score = halves[j] - scores[j];
            if (count == k && !(score < worst)) continue;
            count = lsq_insert(labels, squares, count, k, (uint32_t)j, score);
            worst = squares[count - 1];
        }
        /* Their distances, and the order of these. */
        float *exact = scores;
        memcpy(work, labels, (size_t)k * sizeof(uint32_t));
        lsq_apart(level, rows, centres, work, k, dim, exact);
        count = 0;
        for (int64_t j = 0; j < k; j++) count = lsq_insert(labels, squares, count, k, work[j], exact[j]);
    }
}

/* The best second centre of a row among its k ≥ 2 nearest: its place. products: room for k. */
static int64_t lsq_spill(int level, const float *x, int64_t dim, const float *centres, const uint32_t *labels,
                         const float *squares, int64_t k, float *products) {
    int64_t best = 1;
    float least = INFINITY;
    lsq_along(level, x, centres, labels, k, dim, products);
    for (int64_t j = 1; j < k; j++) {
        float cost = squares[j] + (squares[0] > 0 ? products[j] * products[j] / squares[0] : 0);
        if (cost < least) {
            least = cost;
            best = j;
        }
    }
    return best;
}

#endif

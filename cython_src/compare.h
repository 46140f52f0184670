/* The nearest of all vectors, each compared exactly, in place.

   32 rows at a time (a tile), for all queries while it is in the cache. Rows of kept vectors lie one after another, and
   are summed one by one (exact.h). Those of an index that is not trained, or whose encoder is `flat`, lie as codes do, in
   blocks of 32 rows by byte (column.h): byte 0 of the first number of all 32 rows, then byte 1, and so on. There the 32
   rows are summed side by side, in the same lanes and the same order, so that a vector has the same distance in both
   layouts, bit for bit.

       block   4 × 32 bytes of number 0   ─▶   x[0][0 … 31], float32   ─▶   sums[lane 0][row 0 … 31] += …
               4 × 32 bytes of number 1   ─▶   x[1][0 … 31]            ─▶   sums[lane 1][row 0 … 31] += …
*/
#ifndef LSQ_COMPARE_H
#define LSQ_COMPARE_H

#include "column.h"
#include "exact.h"
#include "filter.h"
#include "nearest.h"

/* Vectors where they lie. `head`: bytes of the head of rows in blocks; 0 for rows one after another. */
typedef struct {
    lsq_column column;
    int kind;
    int64_t dim, head;
    lsq_filter filter;
} lsq_vectors;

/* ---- rows one after another --------------------------------------------------------------------------------------- */

/* The distances of the rows of a tile whose bits are in `mask`. */
#define LSQ_TILE(name, target, ROW)                                                                                    \
    target LSQ_INLINE void name##_of(int kind, int metric, const lsq_target *query, const uint8_t *rows, int64_t dim,  \
                                     uint32_t mask, float *out) {                                                      \
        int64_t width = dim * lsq_number_size(kind) + lsq_scale_size(kind);                                            \
        for (int r = 0; r < LSQ_BLOCK_ROWS; r++)                                                                       \
            if (mask >> r & 1) out[r] = ROW(kind, metric, query, rows + r * width, dim);                               \
    }                                                                                                                  \
    LSQ_BY_KIND(name, target, (const lsq_target *query, const uint8_t *rows, int64_t dim, uint32_t mask, float *out), \
                query, rows, dim, mask, out)
LSQ_TILE(lsq_tile_portable, , lsq_row_portable)
#if LSQ_X86
LSQ_TILE(lsq_tile_avx2, LSQ_TARGET_HALVES, lsq_row_avx2)
#endif

static void lsq_tile(int level, int kind, int metric, const lsq_target *query, const uint8_t *rows, int64_t dim,
                     uint32_t mask, float *out) {
#if LSQ_X86
    if (level != LSQ_PORTABLE) {
        lsq_tile_avx2(kind, metric, query, rows, dim, mask, out);
        return;
    }
#endif
    (void)level;
    lsq_tile_portable(kind, metric, query, rows, dim, mask, out);
}

/* ---- rows in blocks ------------------------------------------------------------------------------------------------ */

/* So many queries share the numbers of a block. */
enum { LSQ_TARGETS = 4 };

typedef float lsq_lanes[LSQ_WIDE][LSQ_BLOCK_ROWS];

/* The numbers of dimension `d` of all rows. */
LSQ_INLINE void lsq_block_numbers(const lsq_block *block, int64_t d, float *x) {
    const uint8_t *a = lsq_block_column(block, 4 * d), *b = lsq_block_column(block, 4 * d + 1);
    const uint8_t *c = lsq_block_column(block, 4 * d + 2), *e = lsq_block_column(block, 4 * d + 3);
    uint32_t bits[LSQ_BLOCK_ROWS];
    for (int r = 0; r < LSQ_BLOCK_ROWS; r++)
        bits[r] = (uint32_t)a[r] | (uint32_t)b[r] << 8 | (uint32_t)c[r] << 16 | (uint32_t)e[r] << 24;
    memcpy(x, bits, sizeof bits);
}

/* The numbers of `lanes` dimensions from `first` on. */
static void lsq_block_read_portable(const lsq_block *block, int64_t first, int lanes, lsq_lanes x) {
    for (int i = 0; i < lanes; i++) lsq_block_numbers(block, first + i, x[i]);
}

#if LSQ_X86
#include "compare_avx2.h"
#endif

typedef void (*lsq_block_read)(const lsq_block *block, int64_t first, int lanes, lsq_lanes x);

LSQ_INLINE lsq_block_read lsq_block_reader(int level) {
#if LSQ_X86
    if (level != LSQ_PORTABLE) return lsq_block_read_avx2;
#endif
    (void)level;
    return lsq_block_read_portable;
}

/* Lanes in halves, as lsq_add_lanes adds those of one row. */
LSQ_INLINE void lsq_block_add(lsq_lanes lanes, double *to) {
    for (int half = LSQ_WIDE / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            for (int r = 0; r < LSQ_BLOCK_ROWS; r++) lanes[i][r] += lanes[half + i][r];
    for (int r = 0; r < LSQ_BLOCK_ROWS; r++) to[r] += lanes[0][r];
}

/* values: the sums of each query and row. squares: those of each row, for cosine. */
LSQ_INLINE void lsq_block_sums_of(int metric, lsq_block_read read, const lsq_block *block, int64_t dim,
                                  const lsq_target *queries, int nq, double (*values)[LSQ_BLOCK_ROWS], double *squares) {
    for (int64_t at = 0; at < dim;) {
        lsq_lanes sums[LSQ_TARGETS], own, x;
        int64_t end = dim - at < LSQ_EXACT_RUN ? dim : at + LSQ_EXACT_RUN;
        memset(sums, 0, (size_t)nq * sizeof(lsq_lanes));
        if (metric == LSQ_COSINE) memset(own, 0, sizeof own);
        for (; at < end; at += LSQ_WIDE) {
            int lanes = end - at < LSQ_WIDE ? (int)(end - at) : LSQ_WIDE;
            read(block, at, lanes, x);
            for (int q = 0; q < nq; q++) {
                const float *numbers = queries[q].numbers + at;
                for (int i = 0; i < lanes; i++)
                    for (int r = 0; r < LSQ_BLOCK_ROWS; r++) {
                        float y = metric == LSQ_L2 ? numbers[i] - x[i][r] : x[i][r];
                        sums[q][i][r] += (metric == LSQ_L2 ? y : numbers[i]) * y;
                    }
            }
            for (int i = 0; metric == LSQ_COSINE && i < lanes; i++)
                for (int r = 0; r < LSQ_BLOCK_ROWS; r++) own[i][r] += x[i][r] * x[i][r];
        }
        for (int q = 0; q < nq; q++) lsq_block_add(sums[q], values[q]);
        if (metric == LSQ_COSINE) lsq_block_add(own, squares);
    }
}

LSQ_INLINE void lsq_block_sums_body(int metric, lsq_block_read read, const lsq_block *block, int64_t dim,
                                    const lsq_target *queries, int nq, double (*values)[LSQ_BLOCK_ROWS], double *squares) {
    if (metric == LSQ_L2) lsq_block_sums_of(LSQ_L2, read, block, dim, queries, nq, values, squares);
    else if (metric == LSQ_IP) lsq_block_sums_of(LSQ_IP, read, block, dim, queries, nq, values, squares);
    else lsq_block_sums_of(LSQ_COSINE, read, block, dim, queries, nq, values, squares);
}
LSQ_BODIES(lsq_block_sums,
           (int metric, lsq_block_read read, const lsq_block *block, int64_t dim, const lsq_target *queries, int nq,
            double (*values)[LSQ_BLOCK_ROWS], double *squares),
           (metric, read, block, dim, queries, nq, values, squares))

/* As lsq_sum_wide, for one row of a block. */
static lsq_pair lsq_block_sum_wide(int metric, const lsq_block *block, int lane, int64_t dim, const float *q) {
    lsq_pair out = {0, 0};
    float numbers[LSQ_BLOCK_ROWS];
    for (int64_t d = 0; d < dim; d++) {
        lsq_block_numbers(block, d, numbers);
        double x = numbers[lane], y = metric == LSQ_L2 ? q[d] - x : x;
        out.value += (metric == LSQ_L2 ? y : q[d]) * y;
        out.square += x * x;
    }
    return out;
}

/* The distances of the rows of a block from up to LSQ_TARGETS queries. */
static void lsq_block_exact(int level, int metric, const lsq_block *block, int64_t dim, const lsq_target *queries, int nq,
                            uint32_t mask, float (*out)[LSQ_BLOCK_ROWS]) {
    double values[LSQ_TARGETS][LSQ_BLOCK_ROWS] = {{0}}, squares[LSQ_BLOCK_ROWS] = {0};
    lsq_block_sums(level, metric, lsq_block_reader(level), block, dim, queries, nq, values, squares);
    for (int q = 0; q < nq; q++)
        for (int r = 0; r < LSQ_BLOCK_ROWS; r++) {
            lsq_pair sum = {values[q][r], squares[r]};
            if (mask >> r & 1 && lsq_too_small(metric, sum, queries[q].square))
                sum = lsq_block_sum_wide(metric, block, r, dim, queries[q].numbers);
            out[q][r] = lsq_distance(metric, sum, queries[q].square);
        }
}

/* ---- all rows ------------------------------------------------------------------------------------------------------ */

/* Records may be compared in several parts at the same time, each with its own results; see nearest.h. */
typedef struct {
    const lsq_vectors *vectors;
    int level, metric;
    int64_t nq, parts;
    lsq_target *queries;
    lsq_nearest *nearest; /* (parts, nq) */
} lsq_comparison;

/* Offer the distances of a tile that begins with row `first`; 0 without memory. */
LSQ_INLINE int lsq_offer_tile(const lsq_filter *filter, lsq_nearest *nearest, uint32_t first, uint32_t mask, const float *distances) {
    for (uint32_t r = 0; r < LSQ_BLOCK_ROWS; r++)
        if (distances[r] <= nearest->worst && mask >> r & 1 && lsq_may(filter, first + r) &&
            !lsq_offer(nearest, first + r, distances[r]))
            return 0;
    return 1;
}

/* Which of `n` rows from `first` on a filter allows, a bit each. (Deleted ones are few: they are left out when found.) */
LSQ_INLINE uint32_t lsq_allowed_mask(const lsq_filter *filter, uint32_t first, uint32_t n) {
    uint32_t mask = n < LSQ_BLOCK_ROWS ? (1u << n) - 1 : 0xFFFFFFFFu;
    for (uint32_t r = 0; filter->allowed && r < n; r++) mask &= ~((uint32_t)!lsq_allowed(filter, first + r) << r);
    return mask;
}

/* One tile for all queries; 0 without memory. */
static int lsq_compare_tile(const lsq_comparison *all, int64_t record, uint32_t tile, uint32_t mask, lsq_nearest *nearest) {
    const lsq_vectors *vectors = all->vectors;
    const uint8_t *payload = lsq_payload(&vectors->column, record);
    const uint32_t first = vectors->column.starts[record] + tile * LSQ_BLOCK_ROWS;
    const int64_t width = vectors->dim * lsq_number_size(vectors->kind) + lsq_scale_size(vectors->kind);
    float distances[LSQ_TARGETS][LSQ_BLOCK_ROWS] = {{0}};
    if (!vectors->head) {
        const uint8_t *rows = payload + (uint64_t)tile * LSQ_BLOCK_ROWS * (uint64_t)width;
        for (int64_t q = 0; q < all->nq; q++) {
            lsq_tile(all->level, vectors->kind, all->metric, &all->queries[q], rows, vectors->dim, mask, distances[0]);
            if (!lsq_offer_tile(&vectors->filter, &nearest[q], first, mask, distances[0])) return 0;
        }
        return 1;
    }
    lsq_block block = lsq_block_in(payload, width, vectors->head, tile);
    for (int64_t q = 0; q < all->nq; q += LSQ_TARGETS) {
        int nq = all->nq - q < LSQ_TARGETS ? (int)(all->nq - q) : LSQ_TARGETS;
        lsq_block_exact(all->level, all->metric, &block, vectors->dim, all->queries + q, nq, mask, distances);
        for (int i = 0; i < nq; i++)
            if (!lsq_offer_tile(&vectors->filter, &nearest[q + i], first, mask, distances[i])) return 0;
    }
    return 1;
}

/* The records from `first` to `last` for all queries; 0 without memory. */
static inline int lsq_compare(const lsq_comparison *all, int64_t part, int64_t first, int64_t last) {
    const lsq_column *column = &all->vectors->column;
    for (int64_t record = first; record < last; record++)
        for (uint32_t at = 0; at < column->counts[record]; at += LSQ_BLOCK_ROWS) {
            uint32_t left = column->counts[record] - at, n = left < LSQ_BLOCK_ROWS ? left : LSQ_BLOCK_ROWS;
            uint32_t mask = lsq_allowed_mask(&all->vectors->filter, column->starts[record] + at, n);
            if (mask && !lsq_compare_tile(all, record, at / LSQ_BLOCK_ROWS, mask, all->nearest + part * all->nq)) return 0;
        }
    return 1;
}

#endif

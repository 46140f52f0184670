/* Exact distances of some rows of each query.

   What a search found is anywhere in the file, each row a cache miss of several lines: so a row is looked up and
   prefetched LSQ_ROWS_AHEAD rows before it is summed. */
#ifndef LSQ_RERANK_H
#define LSQ_RERANK_H

#include "column.h"
#include "exact.h"

enum { LSQ_ROWS_AHEAD = 8, LSQ_LINE = 64 };

/* Into the second cache: the first one has room for few rows, and can wait for few lines at a time. */
LSQ_INLINE void lsq_prefetch(const uint8_t *from, int64_t size) {
#if defined(__GNUC__) || defined(__clang__)
    for (int64_t at = 0; at < size; at += LSQ_LINE) __builtin_prefetch(from + at, 0, 2);
    __builtin_prefetch(from + size - 1, 0, 2);
#else
    (void)from, (void)size;
#endif
}

/* A row that will be compared soon. */
LSQ_INLINE void lsq_prefetch_row(const lsq_column *column, int64_t width, uint32_t row) {
    const int64_t record = lsq_record(column, row);
    if (record >= 0) lsq_prefetch(lsq_payload(column, record) + (uint64_t)(row - column->starts[record]) * (uint64_t)width, width);
}

/* The distances of `n` rows from a query. The position of a row that no record holds, or -1. */
typedef int64_t (*lsq_rerank)(int kind, int metric, const lsq_column *column, int64_t dim, const lsq_target *query,
                              const uint32_t *rows, int64_t n, float *out);

/* One such function for each instruction set. They are large (12 loops each, by kind and metric): only exact.pyx has them
 * compiled in, and tells other modules where they are. */
#define LSQ_RERANK(name, target, ROW)                                                                                  \
    target LSQ_INLINE void name##_each_of(int kind, int metric, const lsq_column *column, int64_t dim,                 \
                                          const lsq_target *query, const uint32_t *rows, int64_t n, float *out,        \
                                          int64_t *missing) {                                                          \
        const uint8_t *places[LSQ_ROWS_AHEAD];                                                                         \
        int64_t width = dim * lsq_number_size(kind) + lsq_scale_size(kind);                                            \
        for (int64_t i = 0; i < n + LSQ_ROWS_AHEAD; i++) {                                                             \
            const uint8_t *row = i < LSQ_ROWS_AHEAD ? NULL : places[i % LSQ_ROWS_AHEAD];                               \
            if (i < n) {                                                                                               \
                int64_t record = lsq_record(column, rows[i]);                                                          \
                if (record < 0) {                                                                                      \
                    *missing = i;                                                                                      \
                    return;                                                                                            \
                }                                                                                                      \
                places[i % LSQ_ROWS_AHEAD] =                                                                           \
                    lsq_payload(column, record) + (uint64_t)(rows[i] - column->starts[record]) * (uint64_t)width;      \
                lsq_prefetch(places[i % LSQ_ROWS_AHEAD], width);                                                       \
            }                                                                                                          \
            if (row) out[i - LSQ_ROWS_AHEAD] = ROW(kind, metric, query, row, dim);                                     \
        }                                                                                                              \
        *missing = -1;                                                                                                 \
    }                                                                                                                  \
    LSQ_BY_KIND(name##_each, target,                                                                                   \
                (const lsq_column *column, int64_t dim, const lsq_target *query, const uint32_t *rows, int64_t n,      \
                 float *out, int64_t *missing),                                                                        \
                column, dim, query, rows, n, out, missing)                                                             \
    static int64_t name(int kind, int metric, const lsq_column *column, int64_t dim, const lsq_target *query,          \
                        const uint32_t *rows, int64_t n, float *out) {                                                 \
        int64_t missing;                                                                                               \
        name##_each(kind, metric, column, dim, query, rows, n, out, &missing);                                         \
        return missing;                                                                                                \
    }
LSQ_RERANK(lsq_rerank_portable, , lsq_row_portable)
#if LSQ_X86
LSQ_RERANK(lsq_rerank_avx2, LSQ_TARGET_HALVES, lsq_row_avx2)
#endif

static inline lsq_rerank lsq_rerank_at(int level) {
#if LSQ_X86
    if (level != LSQ_PORTABLE) return lsq_rerank_avx2;
#endif
    (void)level;
    return lsq_rerank_portable;
}

#endif

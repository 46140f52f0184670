/* rows · matrixᵀ in float32, where a row of the result depends on that row alone.

   BLAS promises no order of its sums: some of its kernels add up the rows of a block in different ways, so that a vector
   would have one code alone and another one among many. Here every number of the result is the sum of its products in
   their order, first to last, whatever stands beside it and whatever the instruction set is.

   The matrix is packed first: 16 of its rows at a time, column after column, so that one load brings the same column of
   eight rows (four, without AVX2). Blocks of 4 rows (2) share these loads. */
#ifndef LSQ_PRODUCT_H
#define LSQ_PRODUCT_H

#include <string.h>

#include "simd.h"

enum { LSQ_PRODUCT_WIDTH = 16 };

/* Floats that are multiplied at once, wherever they lie. Where a compiler has no such type, one after another. */
#if defined(__GNUC__) || defined(__clang__)
typedef float lsq_eight __attribute__((vector_size(32), aligned(4)));
typedef float lsq_four __attribute__((vector_size(16), aligned(4)));
#else
typedef float lsq_four;
#endif

/* The floats of a packed matrix of m rows and k columns. */
LSQ_INLINE int64_t lsq_packed_size(int64_t m, int64_t k) {
    return (m + LSQ_PRODUCT_WIDTH - 1) / LSQ_PRODUCT_WIDTH * LSQ_PRODUCT_WIDTH * k;
}

static inline void lsq_pack_matrix(const float *matrix, int64_t m, int64_t k, float *packed) {
    for (int64_t first = 0; first < m; first += LSQ_PRODUCT_WIDTH, packed += k * LSQ_PRODUCT_WIDTH)
        for (int64_t j = 0; j < LSQ_PRODUCT_WIDTH; j++)
            for (int64_t at = 0; at < k; at++)
                packed[at * LSQ_PRODUCT_WIDTH + j] = first + j < m ? matrix[(first + j) * k + at] : 0;
}

/* NAME_block: the products of R rows with P packed parts of the matrix, of which `width` rows are there; R and P are
 * constants wherever it is inlined. NAME_body: those of all. rows: n × k; out: n × m. A row that has no others beside it
 * is multiplied with several parts at a time, so that sums need not wait for each other. */
#define LSQ_PRODUCT(name, vector, most)                                                                                \
    LSQ_INLINE void name##_block(const float *rows, const float *packed, int64_t k, int64_t m, int64_t width,          \
                                 float *out, int R, int P) {                                                           \
        enum { VECTORS = LSQ_PRODUCT_WIDTH * sizeof(float) / sizeof(vector) };                                         \
        vector sums[most][VECTORS];                                                                                    \
        memset(sums, 0, sizeof sums);                                                                                  \
        for (int64_t at = 0; at < k; at++, packed += LSQ_PRODUCT_WIDTH)                                                \
            for (int r = 0; r < R * P; r++)                                                                            \
                for (int v = 0; v < VECTORS; v++)                                                                      \
                    sums[r][v] += rows[r / P * k + at] * ((const vector *)(packed + r % P * k * LSQ_PRODUCT_WIDTH))[v]; \
        for (int r = 0; r < R; r++) memcpy(out + r * m, sums[r * P], (size_t)width * sizeof(float));                   \
    }                                                                                                                  \
    LSQ_INLINE void name##_body(const float *rows, const float *packed, int64_t n, int64_t k, int64_t m, float *out) { \
        const int64_t whole = n / most * most, size = k * LSQ_PRODUCT_WIDTH;                                           \
        for (int64_t first = 0; first < m; first += LSQ_PRODUCT_WIDTH) {                                               \
            int64_t width = m - first < LSQ_PRODUCT_WIDTH ? m - first : LSQ_PRODUCT_WIDTH;                             \
            for (int64_t row = 0; row < whole; row += most)                                                            \
                name##_block(rows + row * k, packed + first * k, k, m, width, out + row * m + first, most, 1);         \
        }                                                                                                              \
        for (int64_t row = whole; row < n; row++) {                                                                    \
            const float *own = rows + row * k, *parts = packed;                                                        \
            float *to = out + row * m;                                                                                 \
            int64_t left = m;                                                                                          \
            for (; left >= most * LSQ_PRODUCT_WIDTH; left -= most * LSQ_PRODUCT_WIDTH, parts += most * size) {         \
                name##_block(own, parts, k, m, most * LSQ_PRODUCT_WIDTH, to, 1, most);                                 \
                to += most * LSQ_PRODUCT_WIDTH;                                                                        \
            }                                                                                                          \
            for (; left > 0; left -= LSQ_PRODUCT_WIDTH, parts += size, to += LSQ_PRODUCT_WIDTH)                        \
                name##_block(own, parts, k, m, left < LSQ_PRODUCT_WIDTH ? left : LSQ_PRODUCT_WIDTH, to, 1, 1);         \
        }                                                                                                              \
    }
LSQ_PRODUCT(lsq_product_four, lsq_four, 2)

static void lsq_product_portable(const float *rows, const float *packed, int64_t n, int64_t k, int64_t m, float *out) {
    lsq_product_four_body(rows, packed, n, k, m, out);
}
#if LSQ_X86
LSQ_PRODUCT(lsq_product_eight, lsq_eight, 4)

LSQ_TARGET_AVX2 static void lsq_product_avx2(const float *rows, const float *packed, int64_t n, int64_t k, int64_t m,
                                             float *out) {
    lsq_product_eight_body(rows, packed, n, k, m, out);
}
#endif

static void lsq_product(int level, const float *rows, const float *packed, int64_t n, int64_t k, int64_t m, float *out) {
#if LSQ_X86
    if (level != LSQ_PORTABLE) {
        lsq_product_avx2(rows, packed, n, k, m, out);
        return;
    }
#endif
    (void)level;
    lsq_product_portable(rows, packed, n, k, m, out);
}

#endif

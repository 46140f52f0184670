/* Exact distances between queries and kept vectors, read where they lie.

   A row is `dim` numbers of float32 or float16; or a float32 scale and `dim` numbers of float16 or int8, each to be
   multiplied by the scale. The scale of float16 numbers is a power of two, and nearly always 1: then they are read as
   numbers without a scale.

   What a search found is anywhere in the file, each row a cache miss of several lines: so a row is looked up and
   prefetched LSQ_ROWS_AHEAD rows before it is summed.

   All in float32, but for the last steps. Lane i of 32 sums numbers i, 32 + i, 64 + i, …; after 512 numbers, and at the
   end, the lanes are added in halves (16 … 31 to 0 … 15, then 8 … 15 to 0 … 7, and so on) and go to a sum in double. So
   every instruction set gives the same bits, and errors do not grow with the dimensions.

   Squares and products of very small numbers are too small for float32. Where that can matter (see LSQ_SMALL) the sums
   are taken again in double, number after number. */
#ifndef LSQ_EXACT_H
#define LSQ_EXACT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "rows.h"
#include "simd.h"

#if LSQ_X86
#include <cpuid.h>
#include <immintrin.h>
#define LSQ_TARGET_HALVES __attribute__((target("avx2,f16c")))
#endif

enum { LSQ_FLOAT32 = 0, LSQ_FLOAT16 = 1, LSQ_INT8 = 2, LSQ_SCALED_FLOAT16 = 3 };
enum { LSQ_L2 = 0, LSQ_IP = 1, LSQ_COSINE = 2 };
enum { LSQ_WIDE = 32, LSQ_EXACT_RUN = 512, LSQ_ROWS_AHEAD = 8, LSQ_LINE = 64 };

/* A sum of squares below this may have lost numbers. Which sum decides that a row is summed again in double: the squared
 * distance itself for l2, the row's squares for cosine, the query's squares for ip. */
#define LSQ_SMALL 0x1p-80

/* A cosine does not change with the length of the query: one whose squares are below LSQ_SMALL is multiplied by this. */
#define LSQ_LIFT 0x1p100f

/* Sums over the numbers of a row x and a query q: of (q - x)² for l2, else of qx; and, for cosine, of x². */
typedef struct { double value, square; } lsq_pair;

/* Bytes of a number, and of what stands before a row's numbers. */
LSQ_INLINE int64_t lsq_number_size(int kind) { return kind == LSQ_FLOAT32 ? 4 : kind == LSQ_INT8 ? 1 : 2; }
LSQ_INLINE int64_t lsq_scale_size(int kind) { return kind == LSQ_INT8 || kind == LSQ_SCALED_FLOAT16 ? 4 : 0; }

LSQ_INLINE float lsq_load_float(const uint8_t *p) { float x; memcpy(&x, p, 4); return x; }

/* IEEE half precision, exactly, numbers below the normal ones included. */
LSQ_INLINE float lsq_half(const uint8_t *p) {
#if LSQ_ARM64 && (defined(__GNUC__) || defined(__clang__))
    __fp16 x;
    memcpy(&x, p, 2);
    return (float)x;
#else
    uint32_t h = lsq_load16(p), rest = h & 0x7FFFu, normal = (rest << 13) + (112u << 23), bits;
    float below = (float)(int32_t)rest * 0x1p-24f; /* what it is below 2⁻¹⁴: a multiple of the smallest number */
    memcpy(&bits, &below, 4);
    bits = (rest < 0x0400u ? bits : rest < 0x7C00u ? normal : normal + (112u << 23)) | (h & 0x8000u) << 16;
    memcpy(&below, &bits, 4);
    return below;
#endif
}

/* The numbers from `at` on, LSQ_WIDE of them; where fewer are left, with zeros after them, put together in `last`. */
LSQ_INLINE const uint8_t *lsq_numbers(int kind, const uint8_t *numbers, int64_t at, int64_t dim, uint8_t *last) {
    int64_t size = lsq_number_size(kind);
    const uint8_t *from = numbers + at * size;
    if (dim - at >= LSQ_WIDE) return from;
    memset(last, 0, LSQ_WIDE * 4);
    memcpy(last, from, (size_t)((dim - at) * size));
    return last;
}

LSQ_INLINE double lsq_add_lanes(float *lanes) {
    for (int half = LSQ_WIDE / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[half + i];
    return lanes[0];
}

/* Number `i` of those that begin at `from`. */
LSQ_INLINE float lsq_number(int kind, const uint8_t *from, int64_t i, float scale) {
    switch (kind) {
    case LSQ_FLOAT32: return lsq_load_float(from + 4 * i);
    case LSQ_FLOAT16: return lsq_half(from + 2 * i);
    case LSQ_SCALED_FLOAT16: return lsq_half(from + 2 * i) * scale;
    default: return (float)(int8_t)from[i] * scale;
    }
}

/* ---- the sums of one row ------------------------------------------------------------------------------------------ */

/* q: `dim` numbers, with zeros up to a multiple of LSQ_WIDE. */
LSQ_INLINE lsq_pair lsq_sum_portable(int kind, int metric, const float *q, const uint8_t *numbers, float scale, int64_t dim) {
    lsq_pair out = {0, 0};
    uint8_t last[LSQ_WIDE * 4];
    for (int64_t at = 0; at < dim;) {
        float sums[LSQ_WIDE] = {0}, squares[LSQ_WIDE] = {0}, x[LSQ_WIDE];
        int64_t end = dim - at < LSQ_EXACT_RUN ? dim : at + LSQ_EXACT_RUN;
        for (; at < end; at += LSQ_WIDE) {
            const uint8_t *from = lsq_numbers(kind, numbers, at, dim, last);
            for (int i = 0; i < LSQ_WIDE; i++) x[i] = lsq_number(kind, from, i, scale);
            for (int i = 0; i < LSQ_WIDE; i++) {
                float y = metric == LSQ_L2 ? q[at + i] - x[i] : x[i];
                sums[i] += (metric == LSQ_L2 ? y : q[at + i]) * y;
                if (metric == LSQ_COSINE) squares[i] += x[i] * x[i];
            }
        }
        out.value += lsq_add_lanes(sums);
        if (metric == LSQ_COSINE) out.square += lsq_add_lanes(squares);
    }
    return out;
}

/* The same in double, for numbers whose squares or products float32 cannot hold. */
static lsq_pair lsq_sum_wide(int kind, int metric, const float *q, const uint8_t *numbers, float scale, int64_t dim) {
    lsq_pair out = {0, 0};
    for (int64_t i = 0; i < dim; i++) {
        double x = lsq_number(kind, numbers, i, scale), y = metric == LSQ_L2 ? q[i] - x : x;
        out.value += (metric == LSQ_L2 ? y : q[i]) * y;
        out.square += x * x;
    }
    return out;
}

#if LSQ_X86
LSQ_TARGET_HALVES LSQ_INLINE __m256 lsq_eight(int kind, const uint8_t *p, __m256 scale) {
    if (kind == LSQ_FLOAT32) return _mm256_loadu_ps((const float *)p);
    if (kind == LSQ_FLOAT16) return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
    if (kind == LSQ_SCALED_FLOAT16) return _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), scale);
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p))), scale);
}

LSQ_TARGET_HALVES LSQ_INLINE double lsq_add_avx2(const __m256 *lanes) {
    __m256 eight = _mm256_add_ps(_mm256_add_ps(lanes[0], lanes[2]), _mm256_add_ps(lanes[1], lanes[3]));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

LSQ_TARGET_HALVES LSQ_INLINE lsq_pair lsq_sum_avx2(int kind, int metric, const float *q, const uint8_t *numbers, float scale,
                                                   int64_t dim) {
    lsq_pair out = {0, 0};
    uint8_t last[LSQ_WIDE * 4];
    const __m256 scales = _mm256_set1_ps(scale);
    for (int64_t at = 0; at < dim;) {
        __m256 sums[4], squares[4];
        for (int v = 0; v < 4; v++) sums[v] = squares[v] = _mm256_setzero_ps();
        int64_t end = dim - at < LSQ_EXACT_RUN ? dim : at + LSQ_EXACT_RUN;
        for (; at < end; at += LSQ_WIDE) {
            const uint8_t *from = lsq_numbers(kind, numbers, at, dim, last);
            for (int v = 0; v < 4; v++) {
                __m256 x = lsq_eight(kind, from + 8 * v * lsq_number_size(kind), scales), to = _mm256_loadu_ps(q + at + 8 * v);
                __m256 y = metric == LSQ_L2 ? _mm256_sub_ps(to, x) : x;
                sums[v] = _mm256_add_ps(sums[v], _mm256_mul_ps(metric == LSQ_L2 ? y : to, y));
                if (metric == LSQ_COSINE) squares[v] = _mm256_add_ps(squares[v], _mm256_mul_ps(x, x));
            }
        }
        out.value += lsq_add_avx2(sums);
        if (metric == LSQ_COSINE) out.square += lsq_add_avx2(squares);
    }
    return out;
}
#endif

/* Whether this machine converts half precision. All with AVX2 that we know do, but it is a bit of its own. */
static int lsq_converts_halves(void) {
#if LSQ_X86
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c >> 29 & 1;
#else
    return LSQ_ARM64;
#endif
}

/* ---- all rows of one query ---------------------------------------------------------------------------------------- */

typedef struct {
    const lsq_column *column;
    int kind, metric;
    int64_t dim;
} lsq_kept;

/* Into the second cache: the first one has room for few rows, and can wait for few lines at a time. */
LSQ_INLINE void lsq_prefetch(const uint8_t *from, int64_t size) {
#if defined(__GNUC__) || defined(__clang__)
    for (int64_t at = 0; at < size; at += LSQ_LINE) __builtin_prefetch(from + at, 0, 2);
    __builtin_prefetch(from + size - 1, 0, 2);
#else
    (void)from, (void)size;
#endif
}

/* The distances of `n` rows from a query whose squares add up to `square` (not needed for l2); the position of a row that
 * no record holds, or -1. SUM(...) are the sums of one row. */
#define LSQ_DISTANCES(name, target, SUM)                                                                               \
    target LSQ_INLINE int64_t name##_of(const lsq_kept *kept, int kind, int metric, const float *q, double square,     \
                                        const uint32_t *rows, int64_t n, float *out) {                                 \
        const uint8_t *places[LSQ_ROWS_AHEAD];                                                                         \
        int64_t dim = kept->dim, before = lsq_scale_size(kind), width = dim * lsq_number_size(kind) + before;          \
        for (int64_t i = 0; i < n + LSQ_ROWS_AHEAD; i++) {                                                             \
            const uint8_t *row = i < LSQ_ROWS_AHEAD ? NULL : places[i % LSQ_ROWS_AHEAD];                               \
            if (i < n) {                                                                                               \
                int64_t record = lsq_record(kept->column, rows[i]);                                                    \
                if (record < 0) return i;                                                                              \
                const uint8_t *payload = (const uint8_t *)(uintptr_t)kept->column->addresses[record];                  \
                places[i % LSQ_ROWS_AHEAD] = payload + (uint64_t)(rows[i] - kept->column->starts[record]) * (uint64_t)width; \
                lsq_prefetch(places[i % LSQ_ROWS_AHEAD], width);                                                       \
            }                                                                                                          \
            if (!row) continue;                                                                                        \
            const uint8_t *numbers = row + before;                                                                     \
            float scale = before ? lsq_load_float(row) : 1;                                                            \
            lsq_pair sum = kind == LSQ_SCALED_FLOAT16 && scale == 1 ? SUM(LSQ_FLOAT16, metric, q, numbers, 1, dim)     \
                                                                    : SUM(kind, metric, q, numbers, scale, dim);       \
            if ((metric == LSQ_L2 ? sum.value : metric == LSQ_IP ? square : sum.square) < LSQ_SMALL)                   \
                sum = lsq_sum_wide(kind, metric, q, numbers, scale, dim);                                              \
            if (metric == LSQ_COSINE) {                                                                                \
                double norm = sqrt(sum.square * square);                                                               \
                sum.value = 1 - (norm > 0 ? sum.value / norm : 0);                                                     \
            }                                                                                                          \
            out[i - LSQ_ROWS_AHEAD] = (float)(metric == LSQ_IP ? -sum.value : sum.value);                              \
        }                                                                                                              \
        return -1;                                                                                                     \
    }                                                                                                                  \
    target static int64_t name(const lsq_kept *kept, const float *q, double square, const uint32_t *rows, int64_t n,   \
                               float *out) {                                                                           \
        switch (3 * kept->kind + kept->metric) {                                                                       \
        case 0: return name##_of(kept, 0, 0, q, square, rows, n, out);                                                 \
        case 1: return name##_of(kept, 0, 1, q, square, rows, n, out);                                                 \
        case 2: return name##_of(kept, 0, 2, q, square, rows, n, out);                                                 \
        case 3: return name##_of(kept, 1, 0, q, square, rows, n, out);                                                 \
        case 4: return name##_of(kept, 1, 1, q, square, rows, n, out);                                                 \
        case 5: return name##_of(kept, 1, 2, q, square, rows, n, out);                                                 \
        case 6: return name##_of(kept, 2, 0, q, square, rows, n, out);                                                 \
        case 7: return name##_of(kept, 2, 1, q, square, rows, n, out);                                                 \
        case 8: return name##_of(kept, 2, 2, q, square, rows, n, out);                                                 \
        case 9: return name##_of(kept, 3, 0, q, square, rows, n, out);                                                 \
        case 10: return name##_of(kept, 3, 1, q, square, rows, n, out);                                                \
        default: return name##_of(kept, 3, 2, q, square, rows, n, out);                                                \
        }                                                                                                              \
    }
LSQ_DISTANCES(lsq_distances_portable, , lsq_sum_portable)
#if LSQ_X86
LSQ_DISTANCES(lsq_distances_avx2, LSQ_TARGET_HALVES, lsq_sum_avx2)
#endif

/* `q` is room for the query with zeros after it: `dim` rounded up to a multiple of LSQ_WIDE. */
static int64_t lsq_distances(int level, const lsq_kept *kept, const float *query, float *q, const uint32_t *rows, int64_t n,
                             float *out) {
    double square = 0;
    int64_t dim = kept->dim;
    memcpy(q, query, (size_t)dim * sizeof(float));
    for (int64_t i = dim; i % LSQ_WIDE; i++) q[i] = 0;
    if (kept->metric != LSQ_L2) square = lsq_sum_portable(LSQ_FLOAT32, LSQ_COSINE, q, (const uint8_t *)q, 1, dim).square;
    if (kept->metric == LSQ_COSINE && square < LSQ_SMALL) {
        for (int64_t i = 0; i < dim; i++) q[i] *= LSQ_LIFT;
        square = lsq_sum_portable(LSQ_FLOAT32, LSQ_COSINE, q, (const uint8_t *)q, 1, dim).square;
    }
#if LSQ_X86
    if (level != LSQ_PORTABLE) return lsq_distances_avx2(kept, q, square, rows, n, out);
#endif
    (void)level;
    return lsq_distances_portable(kept, q, square, rows, n, out);
}

#endif

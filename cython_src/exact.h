/* Exact distances between queries and vectors, read where they lie.

   A vector is a row of `dim` numbers of float32 or float16; or a float32 scale and `dim` numbers of float16 or int8, each
   to be multiplied by the scale. The scale of float16 numbers is a power of two, and nearly always 1: then they are read
   as numbers without a scale.

   All in float32, but for the last steps. Lane i of 32 sums numbers i, 32 + i, 64 + i, …; after 512 numbers, and at the
   end, the lanes are added in halves (16 … 31 to 0 … 15, then 8 … 15 to 0 … 7, and so on) and go to a sum in double. So
   every instruction set gives the same bits, and errors do not grow with the dimensions.

   Squares and products of very small numbers are too small for float32. Where that can matter (see LSQ_SMALL) the sums
   are taken again in double, number after number.

   Who compares what: rerank.h some rows of each query, compare.h all rows. */
#ifndef LSQ_EXACT_H
#define LSQ_EXACT_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "bytes.h"
#include "simd.h"

enum { LSQ_FLOAT32 = 0, LSQ_FLOAT16 = 1, LSQ_INT8 = 2, LSQ_SCALED_FLOAT16 = 3 };
enum { LSQ_L2 = 0, LSQ_IP = 1, LSQ_COSINE = 2 };
enum { LSQ_WIDE = 32, LSQ_EXACT_RUN = 512 };

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
#include "exact_avx2.h"
#endif

/* Whether this machine converts half precision. All with AVX2 that we know do, but it is a bit of its own. */
static inline int lsq_converts_halves(void) {
#if LSQ_X86
    return lsq_has_f16c();
#else
    return LSQ_ARM64;
#endif
}

/* ---- from sums to distances ---------------------------------------------------------------------------------------- */

/* A query, its numbers followed by zeros up to a multiple of LSQ_WIDE, and the sum of their squares (not for l2). */
typedef struct { const float *numbers; double square; } lsq_target;

LSQ_INLINE int64_t lsq_padded(int64_t dim) { return (dim + LSQ_WIDE - 1) / LSQ_WIDE * LSQ_WIDE; }

/* The sum of the squares of a query. */
static double lsq_query_square(const float *numbers, int64_t dim) {
    return lsq_sum_portable(LSQ_FLOAT32, LSQ_COSINE, numbers, (const uint8_t *)numbers, 1, dim).square;
}

/* `room` is for lsq_padded(dim) numbers. */
static lsq_target lsq_target_of(int metric, const float *query, int64_t dim, float *room) {
    lsq_target target = {room, 0};
    memcpy(room, query, (size_t)dim * sizeof(float));
    for (int64_t i = dim; i % LSQ_WIDE; i++) room[i] = 0;
    if (metric == LSQ_L2) return target;
    target.square = lsq_query_square(room, dim);
    if (metric == LSQ_COSINE && target.square < LSQ_SMALL) {
        for (int64_t i = 0; i < dim; i++) room[i] *= LSQ_LIFT;
        target.square = lsq_query_square(room, dim);
    }
    return target;
}

/* Whether sums in float32 may have lost too much. */
LSQ_INLINE int lsq_too_small(int metric, lsq_pair sum, double square) {
    return (metric == LSQ_L2 ? sum.value : metric == LSQ_IP ? square : sum.square) < LSQ_SMALL;
}

LSQ_INLINE float lsq_distance(int metric, lsq_pair sum, double square) {
    if (metric == LSQ_L2) return (float)sum.value;
    if (metric == LSQ_IP) return (float)-sum.value;
    double norm = sqrt(sum.square * square);
    return (float)(1 - (norm > 0 ? sum.value / norm : 0));
}

/* NAME: the distance of one row. SUM(...) are its sums. `kind` and `metric` are constants where this is inlined. */
#define LSQ_ROW_DISTANCE(name, target, SUM)                                                                            \
    target LSQ_INLINE float name(int kind, int metric, const lsq_target *query, const uint8_t *row, int64_t dim) {     \
        const uint8_t *numbers = row + lsq_scale_size(kind);                                                           \
        float scale = lsq_scale_size(kind) ? lsq_load_float(row) : 1;                                                  \
        lsq_pair sum = kind == LSQ_SCALED_FLOAT16 && scale == 1                                                        \
                           ? SUM(LSQ_FLOAT16, metric, query->numbers, numbers, 1, dim)                                 \
                           : SUM(kind, metric, query->numbers, numbers, scale, dim);                                   \
        if (lsq_too_small(metric, sum, query->square))                                                                 \
            sum = lsq_sum_wide(kind, metric, query->numbers, numbers, scale, dim);                                     \
        return lsq_distance(metric, sum, query->square);                                                               \
    }
LSQ_ROW_DISTANCE(lsq_row_portable, , lsq_sum_portable)
#if LSQ_X86
LSQ_ROW_DISTANCE(lsq_row_avx2, LSQ_TARGET_HALVES, lsq_sum_avx2)
#endif

/* Makes `name` of `name`_of, whose first two arguments are a kind and a metric: constants in each of the calls. */
#define LSQ_BY_KIND(name, target, arguments, ...)                                                                      \
    target static void name(int kind, int metric, LSQ_UNPACK arguments) {                                              \
        switch (3 * kind + metric) {                                                                                   \
        case 0: name##_of(0, 0, __VA_ARGS__); break;                                                                   \
        case 1: name##_of(0, 1, __VA_ARGS__); break;                                                                   \
        case 2: name##_of(0, 2, __VA_ARGS__); break;                                                                   \
        case 3: name##_of(1, 0, __VA_ARGS__); break;                                                                   \
        case 4: name##_of(1, 1, __VA_ARGS__); break;                                                                   \
        case 5: name##_of(1, 2, __VA_ARGS__); break;                                                                   \
        case 6: name##_of(2, 0, __VA_ARGS__); break;                                                                   \
        case 7: name##_of(2, 1, __VA_ARGS__); break;                                                                   \
        case 8: name##_of(2, 2, __VA_ARGS__); break;                                                                   \
        case 9: name##_of(3, 0, __VA_ARGS__); break;                                                                   \
        case 10: name##_of(3, 1, __VA_ARGS__); break;                                                                  \
        default: name##_of(3, 2, __VA_ARGS__); break;                                                                  \
        }                                                                                                              \
    }

#endif

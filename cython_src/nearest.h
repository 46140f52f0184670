/* The nearest rows so far: by exact distance, and by quantized sum.

   Both keep a buffer that is larger than what is wanted; when it is full, the k-th smallest is found and what is too
   far is dropped: nothing is ever sorted. Equal ones are all kept, so what is kept does not depend on any order. */
#ifndef LSQ_NEAREST_H
#define LSQ_NEAREST_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "simd.h"

#define LSQ_SELECT(name, type)                                                                                         \
    /* The k-th smallest of `count` values, which are moved about. */                                                  \
    static type name(type *values, int64_t count, int64_t k) {                                                         \
        int64_t low = 0, high = count - 1, at = k - 1;                                                                 \
        uint64_t random = 1; /* a pivot in a fixed place would make some orders of rows take quadratic time */        \
        while (low < high) {                                                                                           \
            random = random * 6364136223846793005u + 1442695040888963407u;                                             \
            type pivot = values[low + (int64_t)((random >> 33) % (uint64_t)(high - low + 1))];                         \
            int64_t i = low, j = high;                                                                                 \
            while (i <= j) {                                                                                           \
                while (values[i] < pivot) i++;                                                                         \
                while (values[j] > pivot) j--;                                                                         \
                if (i <= j) { type t = values[i]; values[i++] = values[j]; values[j--] = t; }                          \
            }                                                                                                          \
            if (at <= j) high = j; else if (at >= i) low = i; else break;                                              \
        }                                                                                                              \
        return values[at];                                                                                             \
    }
LSQ_SELECT(lsq_kth_float, float)
LSQ_SELECT(lsq_kth_sum, uint16_t)

/* ---- by exact distance: all that are not farther than the k-th ---------------------------------------------------- */

typedef struct {
    float *distances, *work;
    uint32_t *rows;
    int64_t count, capacity, k;
    float worst; /* the k-th smallest distance; infinite until there are k */
} lsq_nearest;

static int lsq_nearest_room(lsq_nearest *nearest, int64_t capacity) {
    float *distances = (float *)realloc(nearest->distances, (size_t)capacity * sizeof(float));
    if (distances) nearest->distances = distances;
    float *work = (float *)realloc(nearest->work, (size_t)capacity * sizeof(float));
    if (work) nearest->work = work;
    uint32_t *rows = (uint32_t *)realloc(nearest->rows, (size_t)capacity * sizeof(uint32_t));
    if (rows) nearest->rows = rows;
    if (distances && work && rows) nearest->capacity = capacity;
    return distances && work && rows;
}

static int lsq_nearest_init(lsq_nearest *nearest, int64_t k) {
    memset(nearest, 0, sizeof(*nearest));
    nearest->k = k;
    nearest->worst = INFINITY;
    return lsq_nearest_room(nearest, k + (k > 32 ? k / 2 : 16));
}

static void lsq_nearest_free(lsq_nearest *nearest) {
    free(nearest->distances);
    free(nearest->work);
    free(nearest->rows);
}

/* Keep what is not farther than the k-th nearest, and room for more; 0 without memory. */
static int lsq_nearest_prune(lsq_nearest *nearest) {
    if (nearest->count >= nearest->k) {
        memcpy(nearest->work, nearest->distances, (size_t)nearest->count * sizeof(float));
        nearest->worst = lsq_kth_float(nearest->work, nearest->count, nearest->k);
        int64_t kept = 0;
        for (int64_t i = 0; i < nearest->count; i++) {
            if (nearest->distances[i] > nearest->worst) continue;
            nearest->distances[kept] = nearest->distances[i];
            nearest->rows[kept++] = nearest->rows[i];
        }
        nearest->count = kept;
    }
    /* Many may be equally far. */
    return nearest->count * 4 <= nearest->capacity * 3 || lsq_nearest_room(nearest, nearest->capacity * 2);
}

LSQ_INLINE int lsq_offer(lsq_nearest *nearest, uint32_t row, float distance) {
    if (!(distance <= nearest->worst)) return 1;
    nearest->distances[nearest->count] = distance;
    nearest->rows[nearest->count++] = row;
    return nearest->count < nearest->capacity || lsq_nearest_prune(nearest);
}

/* ---- by quantized sum: all that are not more than `margin` above the k-th ------------------------------------------- */

/* Where no more than LSQ_FEW are wanted, the smallest sums are kept sorted, and the limit is known at any time. */
enum { LSQ_FEW = 128 };

typedef struct {
    uint16_t *sums, *work;
    uint32_t *rows;
    int64_t count, capacity, k, margin;
    uint16_t limit; /* the k-th smallest sum and the margin; the largest number until there are k */
    uint16_t best[LSQ_FEW];
} lsq_hits;

static int lsq_hits_room(lsq_hits *hits, int64_t capacity) {
    uint16_t *sums = (uint16_t *)realloc(hits->sums, (size_t)capacity * sizeof(uint16_t));
    if (sums) hits->sums = sums;
    uint16_t *work = (uint16_t *)realloc(hits->work, (size_t)capacity * sizeof(uint16_t));
    if (work) hits->work = work;
    uint32_t *rows = (uint32_t *)realloc(hits->rows, (size_t)capacity * sizeof(uint32_t));
    if (rows) hits->rows = rows;
    if (sums && work && rows) hits->capacity = capacity;
    return sums && work && rows;
}

static int lsq_hits_init(lsq_hits *hits, int64_t k, int64_t margin) {
    memset(hits, 0, sizeof(*hits));
    hits->k = k;
    hits->margin = margin;
    hits->limit = 65535;
    memset(hits->best, 0xFF, sizeof(hits->best));
    return lsq_hits_room(hits, k + (k > 512 ? k / 2 : 256));
}

static void lsq_hits_clear(lsq_hits *hits) {
    free(hits->sums);
    free(hits->work);
    free(hits->rows);
    hits->sums = hits->work = NULL;
    hits->rows = NULL;
    hits->count = hits->capacity = 0;
}

LSQ_INLINE void lsq_hits_limit(lsq_hits *hits, uint16_t kth) {
    int64_t limit = kth + hits->margin;
    hits->limit = limit < 65535 ? (uint16_t)limit : 65535;
}

static int lsq_hits_prune(lsq_hits *hits) {
    if (hits->count >= hits->k) {
        if (hits->k > LSQ_FEW) {
            memcpy(hits->work, hits->sums, (size_t)hits->count * sizeof(uint16_t));
            lsq_hits_limit(hits, lsq_kth_sum(hits->work, hits->count, hits->k));
        }
        int64_t kept = 0;
        for (int64_t i = 0; i < hits->count; i++) {
            if (hits->sums[i] > hits->limit) continue;
            hits->sums[kept] = hits->sums[i];
            hits->rows[kept++] = hits->rows[i];
        }
        hits->count = kept;
    }
    return hits->count * 4 <= hits->capacity * 3 || lsq_hits_room(hits, hits->capacity * 2);
}

LSQ_INLINE int lsq_hit(lsq_hits *hits, uint32_t row, uint16_t sum) {
    if (sum > hits->limit) return 1;
    hits->sums[hits->count] = sum;
    hits->rows[hits->count++] = row;
    if (hits->k <= LSQ_FEW && sum < hits->best[hits->k - 1]) {
        int64_t at = hits->k - 1;
        for (; at > 0 && hits->best[at - 1] > sum; at--) hits->best[at] = hits->best[at - 1];
        hits->best[at] = sum;
        lsq_hits_limit(hits, hits->best[hits->k - 1]);
    }
    return hits->count < hits->capacity || lsq_hits_prune(hits);
}

#endif

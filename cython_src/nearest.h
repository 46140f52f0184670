/* What a search collects: the k nearest rows, all rows within a limit, or the k nearest of those within a limit.

   Every search offers rows with their exact distances, in any order, and `worst` tells it what is not worth offering.
   Rows go into a buffer that is larger than k. When it is full, the k-th smallest distance is found and what is farther
   is dropped: nothing is ever sorted. Rows as far as the k-th are all kept, so the result does not depend on the order
   of the offers, nor on how many threads made them. Without a k nothing is dropped, and the buffer grows. */
#ifndef LSQ_NEAREST_H
#define LSQ_NEAREST_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "select.h"
#include "simd.h"

LSQ_SELECT(lsq_kth_float, float)

/* The k of a search that wants all rows within its limit. */
#define LSQ_ALL INT64_MAX

/* Larger buffers are made when they are needed. */
enum { LSQ_ROOM = 1 << 16 };

typedef struct {
    float *distances, *work;
    uint32_t *rows;
    int64_t count, capacity, k;
    float worst; /* farther rows are not wanted: the limit, then the k-th smallest distance as soon as there are k */
} lsq_nearest;

/* The largest float32 that is not above `limit`: a float32 is within both or within neither. */
LSQ_INLINE float lsq_float_limit(double limit) {
    float nearby = (float)limit;
    return (double)nearby > limit ? nextafterf(nearby, -INFINITY) : nearby;
}

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

static int lsq_nearest_init(lsq_nearest *nearest, int64_t k, float limit) {
    int64_t few = k < LSQ_ROOM ? k : LSQ_ROOM;
    memset(nearest, 0, sizeof(*nearest));
    nearest->k = k;
    nearest->worst = limit;
    return lsq_nearest_room(nearest, few + (few > 32 ? few / 2 : 16));
}

static void lsq_nearest_free(lsq_nearest *nearest) {
    free(nearest->distances);
    free(nearest->work);
    free(nearest->rows);
}

/* Drop what is farther than the k-th nearest, and have room for more; 0 without memory. */
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

/* A distance that is not a number is never near. */
LSQ_INLINE int lsq_offer(lsq_nearest *nearest, uint32_t row, float distance) {
    if (!(distance <= nearest->worst)) return 1;
    nearest->distances[nearest->count] = distance;
    nearest->rows[nearest->count++] = row;
    return nearest->count < nearest->capacity || lsq_nearest_prune(nearest);
}

/* Several parts of a search may run at the same time, each with its own `nearest` for each of `nq` queries, in an array
 * (parts, nq). Join those of query q in its first one. */
static inline int lsq_nearest_join(lsq_nearest *nearest, int64_t parts, int64_t nq, int64_t q) {
    for (int64_t part = 1; part < parts; part++) {
        const lsq_nearest *other = &nearest[part * nq + q];
        for (int64_t i = 0; i < other->count; i++)
            if (!lsq_offer(&nearest[q], other->rows[i], other->distances[i])) return 0;
    }
    return lsq_nearest_prune(&nearest[q]);
}

/* What `nq` queries found, one after another. */
static inline void lsq_nearest_copy(const lsq_nearest *nearest, int64_t nq, uint32_t *rows, float *distances) {
    for (int64_t q = 0; q < nq; rows += nearest[q].count, distances += nearest[q].count, q++) {
        memcpy(rows, nearest[q].rows, (size_t)nearest[q].count * sizeof(uint32_t));
        memcpy(distances, nearest[q].distances, (size_t)nearest[q].count * sizeof(float));
    }
}

#endif

/* Candidates of a scan: rows whose quantized sums are small enough that they may be among the wanted ones (nearest.h).

   Kept are all rows whose sum is at most `margin` above the k-th smallest sum and not above `ceiling`, which stands for
   the limit of the search. As in nearest.h, a buffer is pruned when it is full, and order does not matter. */
#ifndef LSQ_HITS_H
#define LSQ_HITS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "nearest.h"
#include "select.h"
#include "simd.h"

LSQ_SELECT(lsq_kth_sum, uint16_t)

/* Where no more than LSQ_FEW are wanted, the smallest sums are kept sorted, and the limit is known at any time.
 * LSQ_LARGEST stands for a sum that is not known: no limit. */
enum { LSQ_FEW = 128, LSQ_LARGEST = 65535 };

typedef struct {
    uint16_t *sums, *work;
    uint32_t *rows;
    int64_t count, capacity, k, margin;
    uint16_t ceiling; /* larger sums are beyond the limit of the search */
    uint16_t kth;     /* the k-th smallest sum; LSQ_LARGEST until there are k */
    uint16_t limit;   /* the smaller of `ceiling` and `kth` + `margin` */
    uint16_t best[LSQ_FEW];
} lsq_hits;

/* A sum as a ceiling, also where it is out of range or not a number. */
LSQ_INLINE uint16_t lsq_ceiling(double sum) {
    return !(sum < LSQ_LARGEST) ? LSQ_LARGEST : sum > 0 ? (uint16_t)sum : 0;
}

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

static int lsq_hits_init(lsq_hits *hits, int64_t k, int64_t margin, uint16_t ceiling) {
    int64_t few = k < LSQ_ROOM ? k : LSQ_ROOM;
    memset(hits, 0, sizeof(*hits));
    hits->k = k;
    hits->margin = margin;
    hits->limit = hits->ceiling = ceiling;
    hits->kth = LSQ_LARGEST;
    memset(hits->best, 0xFF, sizeof(hits->best));
    return lsq_hits_room(hits, few + (few > 512 ? few / 2 : 256));
}

/* The same buffers for another search, without a margin or a ceiling. */
static inline void lsq_hits_again(lsq_hits *hits, int64_t k) {
    hits->count = hits->margin = 0;
    hits->k = k;
    hits->limit = hits->ceiling = hits->kth = LSQ_LARGEST;
    memset(hits->best, 0xFF, sizeof(hits->best));
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
    hits->kth = kth;
    hits->limit = limit < hits->ceiling ? (uint16_t)limit : hits->ceiling;
}

/* Drop what is above the limit, and have room for more; 0 without memory. */
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

/* Join the hits of several parts, as lsq_nearest_join does. */
static inline int lsq_hits_join(lsq_hits *hits, int64_t parts, int64_t nq, int64_t q) {
    for (int64_t part = 1; part < parts; part++) {
        const lsq_hits *other = &hits[part * nq + q];
        for (int64_t i = 0; i < other->count; i++)
            if (!lsq_hit(&hits[q], other->rows[i], other->sums[i])) return 0;
    }
    return lsq_hits_prune(&hits[q]);
}

#endif

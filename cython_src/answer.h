/* The answer to a query: its k nearest rows, by distance and then by id.

   Ids are read where they lie (gather.h). Those of strings are compared as bytes, which for UTF-8 is the order of their
   code points. */
#ifndef LSQ_ANSWER_H
#define LSQ_ANSWER_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gather.h"
#include "nearest.h"

/* How a step of a search ended. */
enum { LSQ_FINE = 0, LSQ_NO_MEMORY = 1, LSQ_NO_ID = 2, LSQ_NO_VECTOR = 3 };

typedef struct {
    lsq_column column;
    int strings;
} lsq_ids;

typedef struct {
    float distance;
    uint32_t row;
    int64_t id;           /* an int; of a string the number of its bytes */
    const uint8_t *bytes; /* of a string; NULL for an int */
} lsq_match;

typedef struct {
    lsq_match *matches;
    int64_t count;
} lsq_answer;

/* The id of a match's row; 0 where no record holds the row. */
LSQ_INLINE int lsq_name(const lsq_ids *ids, lsq_match *match) {
    if (!ids->strings) {
        match->bytes = NULL;
        return lsq_gather_ints(&ids->column, &match->row, 1, &match->id) < 0;
    }
    uint32_t size = 0;
    int there = lsq_string(&ids->column, match->row, &match->bytes, &size);
    match->id = size;
    return there;
}

static int lsq_by_id(const lsq_match *a, const lsq_match *b) {
    if (a->bytes && b->bytes) {
        int order = memcmp(a->bytes, b->bytes, (size_t)(a->id < b->id ? a->id : b->id));
        if (order) return order;
    }
    return (a->id > b->id) - (a->id < b->id);
}

static int lsq_by_distance(const void *left, const void *right) {
    const lsq_match *a = (const lsq_match *)left, *b = (const lsq_match *)right;
    if (a->distance != b->distance) return a->distance < b->distance ? -1 : 1;
    return lsq_by_id(a, b);
}

/* Few matches are sorted by insertion: most answers are short. */
enum { LSQ_SORT_FEW = 24 };

static void lsq_sort_matches(lsq_match *matches, int64_t count) {
    if (count > LSQ_SORT_FEW) {
        qsort(matches, (size_t)count, sizeof(lsq_match), lsq_by_distance);
        return;
    }
    for (int64_t i = 1; i < count; i++) {
        lsq_match own = matches[i];
        int64_t at = i;
        for (; at > 0 && lsq_by_distance(&own, &matches[at - 1]) < 0; at--) matches[at] = matches[at - 1];
        matches[at] = own;
    }
}

/* The k nearest of what was collected, which is pruned. An answer that was there before is replaced. */
static int lsq_answer_from(lsq_answer *answer, const lsq_ids *ids, const lsq_nearest *nearest, int64_t k) {
    lsq_match *matches = (lsq_match *)realloc(answer->matches, (size_t)(nearest->count + 1) * sizeof(lsq_match));
    if (!matches) return LSQ_NO_MEMORY;
    answer->matches = matches;
    for (int64_t i = 0; i < nearest->count; i++) {
        matches[i].distance = nearest->distances[i];
        matches[i].row = nearest->rows[i];
        if (!lsq_name(ids, &matches[i])) return LSQ_NO_ID;
    }
    lsq_sort_matches(matches, nearest->count);
    answer->count = nearest->count < k ? nearest->count : k;
    return LSQ_FINE;
}

/* The k nearest of `count` rows, none farther than `limit`. */
static inline int lsq_answer_of(lsq_answer *answer, const lsq_ids *ids, const uint32_t *rows, const float *distances, int64_t count,
                         int64_t k, float limit) {
    lsq_nearest nearest;
    const int64_t most = k < count ? k : count > 0 ? count : 1;
    int fine = lsq_nearest_init(&nearest, most, limit);
    for (int64_t i = 0; fine && i < count; i++) fine = lsq_offer(&nearest, rows[i], distances[i]);
    fine = fine && lsq_nearest_prune(&nearest);
    int ended = fine ? lsq_answer_from(answer, ids, &nearest, k) : LSQ_NO_MEMORY;
    lsq_nearest_free(&nearest);
    return ended;
}

/* An answer as one row of arrays of `k` places; ids only where they are ints. No distance is below `least`: an estimate, or
 * a sum in floats, can be. */
static void lsq_answer_write(const lsq_answer *answer, int64_t k, float least, int64_t *ids, float *distances, int64_t *rows) {
    for (int64_t i = 0; i < k; i++) {
        int there = i < answer->count;
        const lsq_match *match = &answer->matches[there ? i : 0];
        if (ids) ids[i] = there ? match->id : -1;
        if (rows) rows[i] = there ? (int64_t)match->row : -1;
        distances[i] = !there ? INFINITY : match->distance > least ? match->distance : least;
    }
}

#endif

/* What a search of cells (cells.h) is given, and its work space: one for all queries of a call. */
#ifndef LSQ_CELLS_WORK_H
#define LSQ_CELLS_WORK_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "codes.h"
#include "compare.h"
#include "hits.h"
#include "nearest.h"
#include "quantize.h"
#include "seen.h"
#include "tables.h"

/* ---- what does not change between queries --------------------------------------------------------------------------- */

typedef struct {
    int64_t count;
    const uint64_t *addresses; /* (count, 2): the payloads of a cell and of its tail; 0 where there is none */
    const uint32_t *sizes;     /* (count, 2): their entries */
    int64_t entries;           /* of all cells */
    lsq_column centres;        /* as vectors of float16 */
    const uint8_t *centre_codes; /* in blocks of 32 by column, the heads before the rest */
    const float *near, *spreads; /* see above */
} lsq_cells;

typedef struct {
    lsq_cells cells;
    lsq_codes codes;          /* of all rows */
    uint32_t fresh;           /* rows from here on are in no cell */
    const uint8_t *there;     /* for each chunk of rows: whether it is stored. Cells may name rows of one given back */
    int64_t chunks;
    uint32_t chunk_rows;
    int nibbles;              /* codes are summed by nibbles, or field after field */
    const lsq_linear *linear; /* makes the tables; NULL where they are given */
    int64_t lookups, dim;
    const lsq_vectors *kept;  /* what rows are compared with; NULL: with the distances of their codes */
    const uint8_t *verified;  /* for each record of kept vectors */
    int metric, level, exact_level;
    lsq_ids ids;
    int64_t k;
    float limit; /* farther rows are not wanted */
    float reach, slope, tau, misses, lost;
    int64_t probes, depth; /* so many cells; so many rows compared: instead of the rule, where they are not 0 */
} lsq_cells_plan;

/* What was done, for explain(). */
typedef struct { int64_t cells, rows, compared; double left; } lsq_visits;

/* LSQ_FIRST: so many cells are visited before the rule is looked at, and LSQ_LOOK between two looks. LSQ_RANKED: so many
 * centres are ranked exactly at first. LSQ_SAMPLED: rows compared that were not chosen by their estimates. LSQ_MORE: rows
 * compared at first, besides k. */
enum { LSQ_FIRST = 4, LSQ_LOOK = 4, LSQ_RANKED = 32, LSQ_SAMPLED = 16, LSQ_MORE = 6 };
/* A record of kept vectors has not been verified yet (the others are in answer.h). */
enum { LSQ_UNVERIFIED = 4 };

/* ---- work space, used for one query after another ------------------------------------------------------------------- */

typedef struct { float distance; uint32_t cell; } lsq_ranked;

typedef struct {
    /* the query: look-ups by nibble, exact and quantized; its numbers */
    float *lookups, *low, *high, *numbers;
    uint16_t *quantized;
    uint8_t *tables;
    const float *values;
    float bias;
    lsq_scale scale;
    int64_t wide;
    lsq_target target;
    /* centres: sums of their codes, and those in order */
    uint16_t *sums;
    uint32_t *chosen;
    float *distances;
    lsq_ranked *order;
    int64_t ordered, reached, farthest;
    /* rows: found by their codes, met before, to be compared (with estimates), the k smallest distances, the nearest */
    lsq_hits hits;
    lsq_seen seen;
    uint32_t *rows;
    float *exact, *estimates, *best;
    int64_t room, best_count;
    uint32_t sample_rows[LSQ_SAMPLED];
    uint16_t sample_sums[LSQ_SAMPLED];
    int sampled;
    lsq_nearest nearest;
    int64_t taken; /* rows that are to be compared, where one of them is not verified */
    void *all;
} lsq_cells_work;

static void lsq_cells_work_free(lsq_cells_work *work) {
    free(work->all);
    free(work->rows);
    free(work->exact);
    lsq_seen_free(&work->seen);
    lsq_hits_clear(&work->hits);
    lsq_nearest_free(&work->nearest);
}

/* Entries compared at first, the best by their codes: twice as many as rows, for a row may be in two cells. And entries kept
 * until it is known which are worth comparing. */
LSQ_INLINE int64_t lsq_cells_depth(const lsq_cells_plan *plan) { return 2 * (plan->depth ? plan->depth : plan->k + LSQ_MORE); }
LSQ_INLINE int64_t lsq_cells_kept(const lsq_cells_plan *plan) {
    const int64_t depth = lsq_cells_depth(plan);
    return plan->depth ? depth : 4 * depth > LSQ_FEW ? 4 * depth : LSQ_FEW + 1;
}

static int lsq_cells_room(lsq_cells_work *work, int64_t room) {
    uint32_t *rows = (uint32_t *)realloc(work->rows, (size_t)room * sizeof(uint32_t));
    if (rows) work->rows = rows;
    float *exact = (float *)malloc((size_t)(2 * room) * sizeof(float));
    if (!rows || !exact) return 0;
    if (work->exact) memcpy(exact + room, work->estimates, (size_t)work->room * sizeof(float));
    free(work->exact);
    work->exact = exact;
    work->estimates = exact + room;
    work->room = room;
    return 1;
}

static int lsq_cells_work_init(lsq_cells_work *work, const lsq_cells_plan *plan) {
    const size_t nibbles = 2 * (size_t)plan->codes.width, cells = ((size_t)plan->cells.count + 31) / 32 * 32;
    const size_t sizes[] = {nibbles * 16 * sizeof(float), nibbles * sizeof(float), nibbles * sizeof(float),
                            (size_t)lsq_padded(plan->dim) * sizeof(float), nibbles * 16 * sizeof(uint16_t),
                            (size_t)lsq_pairs(&plan->codes) * LSQ_PAIR, cells * sizeof(uint16_t), cells * sizeof(uint32_t),
                            cells * sizeof(float), cells * sizeof(lsq_ranked), (size_t)plan->k * sizeof(float)};
    size_t total = 64;
    memset(work, 0, sizeof(*work));
    void **places[] = {(void **)&work->lookups, (void **)&work->low, (void **)&work->high, (void **)&work->numbers,
                       (void **)&work->quantized, (void **)&work->tables, (void **)&work->sums, (void **)&work->chosen,
                       (void **)&work->distances, (void **)&work->order, (void **)&work->best};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) total += (sizes[i] + 63) / 64 * 64;
    uint8_t *at = (uint8_t *)(work->all = malloc(total));
    if (!at) return 0;
    at += (64 - (uintptr_t)at % 64) % 64;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); at += (sizes[i] + 63) / 64 * 64, i++) *places[i] = at;
    return lsq_cells_room(work, 1024) && lsq_seen_init(&work->seen) &&
           lsq_hits_init(&work->hits, lsq_cells_kept(plan), 0, LSQ_LARGEST) && lsq_nearest_init(&work->nearest, plan->k, plan->limit);
}

#endif

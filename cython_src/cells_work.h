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
#include "line.h"
#include "nearest.h"
#include "quantize.h"
#include "rerank.h"
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
    int64_t row_size;         /* bytes of a kept vector */
    const uint8_t *verified;  /* for each record of kept vectors */
    int metric, level;
    lsq_rerank rerank; /* compares rows exactly */
    int all; /* every row that a cell names may be found */
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
enum { LSQ_FIRST = 4, LSQ_LOOK = 4, LSQ_RANKED = 16, LSQ_SAMPLED = 8, LSQ_MORE = 14 };
/* A record of kept vectors has not been verified yet (the others are in answer.h). */
enum { LSQ_UNVERIFIED = 4 };

/* ---- work space, used for one query after another ------------------------------------------------------------------- */

typedef struct { float distance; uint32_t cell; } lsq_ranked;

typedef struct {
    /* the tables of queries, which are made for LSQ_TABLES_AT_ONCE of them; those of the query that is searched */
    float *made, *made_work;
    const float *values;
    float bias;
    /* its look-ups as whole steps: estimates are base + step * sum */
    lsq_scale scale;
    int64_t wide;
    uint8_t *tables;
    /* look-ups by nibble, exact and quantized; the query's numbers */
    float *lookups, *low, *high, *numbers;
    uint16_t *quantized;
    lsq_target target;
    /* centres: sums of their codes, as sums.h has them, and those in order */
    uint16_t *sums, *bounds;
    uint32_t *masks, *chosen;
    float *distances, *estimated;
    uint64_t *keys;
    lsq_ranked *order;
    int64_t ordered, reached;
    lsq_points centre_points;
    lsq_moments centre_moments;
    /* entries that were read: their sums, as sums.h has them, and those that are small enough; of the first ones the rows */
    uint16_t *entry_sums, *entry_bounds;
    uint32_t *entry_masks, *entry_rows, *entry_places;
    int64_t entries, entry_room;
    lsq_moments entry_moments;
    lsq_points points;
    /* rows: found by their codes (where `depth` is given), met before, to be compared, with estimates */
    lsq_hits hits;
    lsq_seen seen;
    uint32_t *rows;
    float *exact, *estimates;
    int64_t taken, room;
    int verify; /* some records of kept vectors have not been verified */
    /* the k smallest distances, and the nearest */
    float *best;
    int64_t best_count;
    lsq_nearest nearest;
    void *all;
} lsq_cells_work;

static void lsq_cells_work_free(lsq_cells_work *work) {
    free(work->all);
    free(work->entry_sums);
    free(work->rows);
    free(work->exact);
    lsq_seen_free(&work->seen);
    lsq_hits_clear(&work->hits);
    lsq_nearest_free(&work->nearest);
}

/* Entries compared at first, the best by their codes: twice as many as rows, for a row may be in two cells. */
LSQ_INLINE int64_t lsq_cells_depth(const lsq_cells_plan *plan) { return 2 * (plan->depth ? plan->depth : plan->k + LSQ_MORE); }

/* Room for the sums of so many entries; those that are there stay. */
static int lsq_entry_room(lsq_cells_work *work, int64_t room) {
    const size_t n = (size_t)room, old = (size_t)work->entries;
    uint8_t *at = (uint8_t *)malloc(n * (2 * sizeof(uint16_t) + 2 * sizeof(uint32_t)) + (n / 32 + 1) * sizeof(uint32_t));
    if (!at) return 0;
    uint32_t *rows = (uint32_t *)(at + 2 * n * sizeof(uint16_t));
    if (old) memcpy(at, work->entry_sums, old * sizeof(uint16_t));
    if (old) memcpy(rows, work->entry_rows, old * sizeof(uint32_t));
    free(work->entry_sums);
    work->entry_sums = (uint16_t *)at;
    work->entry_bounds = work->entry_sums + n;
    work->entry_rows = rows;
    work->entry_places = rows + n;
    work->entry_masks = rows + 2 * n;
    work->entry_room = room;
    return 1;
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
    const size_t made = plan->linear ? LSQ_TABLES_AT_ONCE * (size_t)(plan->lookups + 1) : 0;
    const size_t made_work = plan->linear ? (size_t)lsq_tables_work(plan->linear, LSQ_TABLES_AT_ONCE) : 0;
    const struct { void **to; size_t size; } parts[] = {
        {(void **)&work->made, made * sizeof(float)},
        {(void **)&work->made_work, made_work * sizeof(float)},
        {(void **)&work->tables, (size_t)lsq_pairs(&plan->codes) * LSQ_PAIR},
        {(void **)&work->lookups, nibbles * 16 * sizeof(float)},
        {(void **)&work->low, nibbles * sizeof(float)},
        {(void **)&work->high, nibbles * sizeof(float)},
        {(void **)&work->quantized, nibbles * 16 * sizeof(uint16_t)},
        {(void **)&work->numbers, (size_t)lsq_padded(plan->dim) * sizeof(float)},
        {(void **)&work->sums, cells * sizeof(uint16_t)},
        {(void **)&work->bounds, cells * sizeof(uint16_t)},
        {(void **)&work->masks, cells / 32 * sizeof(uint32_t)},
        {(void **)&work->chosen, (cells + 1) * sizeof(uint32_t)},
        {(void **)&work->distances, cells * sizeof(float)},
        {(void **)&work->estimated, cells * sizeof(float)},
        {(void **)&work->keys, cells * sizeof(uint64_t)},
        {(void **)&work->order, cells * sizeof(lsq_ranked)},
        {(void **)&work->best, (size_t)plan->k * sizeof(float)},
    };
    const size_t count = sizeof(parts) / sizeof(*parts);
    size_t total = 64;
    memset(work, 0, sizeof(*work));
    for (size_t i = 0; i < count; i++) total += (parts[i].size + 63) / 64 * 64;
    uint8_t *at = (uint8_t *)(work->all = malloc(total));
    if (!at) return 0;
    at += (64 - (uintptr_t)at % 64) % 64;
    for (size_t i = 0; i < count; at += (parts[i].size + 63) / 64 * 64, i++) *parts[i].to = at;
    return lsq_cells_room(work, 1024) && lsq_entry_room(work, 4096) && lsq_seen_init(&work->seen) &&
           lsq_hits_init(&work->hits, lsq_cells_depth(plan), 0, LSQ_LARGEST) && lsq_nearest_init(&work->nearest, plan->k, plan->limit);
}

/* ---- work space that is kept from call to call ----------------------------------------------------------------------- */

#if defined(__GNUC__) || defined(__clang__)
#define LSQ_EXCHANGE(place, pointer) __atomic_exchange_n(place, pointer, __ATOMIC_ACQ_REL)
#else
#include <intrin.h>
#define LSQ_EXCHANGE(place, pointer) _InterlockedExchangePointer((void *volatile *)(place), pointer)
#endif

static void lsq_cells_work_end(lsq_cells_work *work) {
    if (work) lsq_cells_work_free(work);
    free(work);
}

/* The work space that was left at `spare`, or a new one; NULL without memory. */
static lsq_cells_work *lsq_cells_work_take(lsq_cells_work **spare, const lsq_cells_plan *plan) {
    lsq_cells_work *work = LSQ_EXCHANGE(spare, NULL);
    if (work) return work;
    work = (lsq_cells_work *)malloc(sizeof(lsq_cells_work));
    if (!work || lsq_cells_work_init(work, plan)) return work;
    lsq_cells_work_end(work);
    return NULL;
}

/* Leave it for the next call. */
static void lsq_cells_work_leave(lsq_cells_work **spare, lsq_cells_work *work) { lsq_cells_work_end(LSQ_EXCHANGE(spare, work)); }

#endif

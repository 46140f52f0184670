/* The search of cells: a query visits the cells that may hold its neighbours, nearest first, until those left hold few.

   For one query:

       1  centres are ranked by their codes (sums.h), and the best of them exactly (centres.h)
       2  a few cells are scanned, and the rows that are in no cell yet. The best rows by their codes are compared exactly,
          and some that were not chosen: that gives the k-th distance so far, and how distances depend on estimates (a line)
       3  further cells are scanned, and rows whose estimates are near enough compared exactly, while the rule says so

   The rule. Cells are visited in the order of their centres' distances d. Cell number p (0, 1, 2, …) is visited if

       d - kth <= reach - slope * log2(p + 1)

   where kth is the k-th smallest distance of a row so far. A fixed number of cells would be right for one kind of query
   only: neighbours that are far away, as those of a query unlike the stored vectors, are in more cells, and kth tells. A
   fixed difference of distances would be too generous where there are many near cells.

   A query that is near to nothing has its neighbours anywhere, and no reach is enough. So a cell is visited, too, if
   more than `misses` rows of the cells left are expected to be nearer than kth. The rows of a cell are taken to be spread
   around a mean m with a deviation s,

       cosine   m = 1 - near (1 - d)   s = tau sqrt(1 - near²)     near: the mean cosine between its rows and its centre
       ip       m = d                  s = tau spread |q|          spread: root mean square distance of rows and centre
       l2       m = d + spread²        s = 2 tau spread sqrt(d)

   tau is about one over the square root of the data's effective dimensions. Of the next cell, times the cells left: later
   ones have fewer.

   Which rows are compared. Over those compared so far, distances are a line in the estimates, give or take a deviation. From
   that and from the estimates of all rows follows how the estimates of rows that are as far as kth are spread (line.h), and
   rows are compared up to the estimate that all but a share `lost` of these are below. The worse the codes, the more rows.

   Centres that may be within reach, as far as their codes tell, are ranked exactly in the same way.

   reach, slope, tau, lost and how far `misses` can be trusted are measured when cells are made
   (_subsets/cells/calibration.py). */
#ifndef LSQ_CELLS_H
#define LSQ_CELLS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "cells_work.h"
#include "centres.h"
#include "distances.h"
#include "line.h"
#include "rerank.h"

/* ---- scanning ------------------------------------------------------------------------------------------------------- */

/* Whether a row may be found. A cell may name one whose chunk was given back. */
LSQ_INLINE int lsq_cells_may(const lsq_cells_plan *plan, uint32_t row) {
    if (plan->all) return 1;
    const uint32_t chunk = row / plan->chunk_rows;
    return chunk < plan->chunks && plan->there[chunk] && lsq_may(&plan->codes.filter, row);
}

/* A row that is to be compared, if it may be found and was not met before. Its vector is asked for: it is anywhere in the file. */
LSQ_INLINE int lsq_cells_take(const lsq_cells_plan *plan, lsq_cells_work *work, uint32_t row, uint16_t sum) {
    if (!lsq_cells_may(plan, row)) return 0;
    const int new = lsq_seen_add(&work->seen, row);
    if (new <= 0) return new;
    if (work->taken == work->room && !lsq_cells_room(work, 2 * work->room)) return -1;
    work->rows[work->taken] = row;
    work->estimates[work->taken++] = sum;
    if (plan->kept) lsq_prefetch_row(&plan->kept->column, plan->row_size, row);
    return 1;
}

/* Sums of the entries of a record from block `first` on, into the work space from `at` on; and masks of those that are not
 * above the limit. How many there are, those that fill up the last block included; -1 without memory. */
static int64_t lsq_cells_read(const lsq_cells_plan *plan, lsq_cells_work *work, const uint8_t *payload, int64_t count,
                              int64_t first, int64_t at, uint16_t limit) {
    const int64_t blocks = (count + 31) / 32 - first;
    if (at + 32 * blocks > work->entry_room && !lsq_entry_room(work, 2 * (at + 32 * blocks))) return -1;
    uint32_t *masks = work->entry_masks + at / 32;
    lsq_cells_sums(plan, work, lsq_block_in(payload, plan->codes.width, plan->codes.head, (uint64_t)first), blocks, limit,
                   work->entry_sums + at, masks);
    if (count & 31) masks[blocks - 1] &= (1u << (count & 31)) - 1;
    return 32 * blocks;
}

/* The entries of a record beside those that were read before. `rows`: the rows of its entries; NULL where they follow each
 * other from `start` on. Those before entry `skip` have no sum. */
static int lsq_cells_collect(const lsq_cells_plan *plan, lsq_cells_work *work, const uint8_t *payload, int64_t count,
                             const uint8_t *rows, uint32_t start, int64_t skip) {
    const int64_t first = skip / 32, at = work->entries, read = lsq_cells_read(plan, work, payload, count, first, at, 0);
    if (read < 0) return LSQ_NO_MEMORY;
    uint32_t *own = work->entry_rows + at;
    uint16_t *sums = work->entry_sums + at;
    for (int64_t i = 0; i < read; i++) own[i] = rows ? lsq_load32(rows + 4 * (32 * first + i)) : start + (uint32_t)(32 * first + i);
    for (int64_t i = 0; i < skip - 32 * first; i++) sums[lsq_sum_place(i)] = LSQ_LARGEST;
    for (int64_t i = count - 32 * first; i < read; i++) sums[lsq_sum_place(i)] = LSQ_LARGEST;
    work->entries += read;
    return LSQ_FINE;
}

LSQ_INLINE void lsq_cells_prefetch(const lsq_cells_plan *plan, int64_t cell) {
    const uint8_t *payload = (const uint8_t *)(uintptr_t)plan->cells.addresses[2 * cell];
    int64_t size = plan->cells.sizes[2 * cell] * (plan->codes.width + 4);
    if (size > LSQ_AHEAD) size = LSQ_AHEAD;
    for (int64_t at = -LSQ_HEADER; size && at < size; at += LSQ_LINE) LSQ_PREFETCH(payload + at);
}

/* The rows of a record's entries: they follow the codes, whose last block is full. */
LSQ_INLINE const uint8_t *lsq_cells_rows(const lsq_cells_plan *plan, const uint8_t *payload, int64_t count) {
    return payload + plan->codes.width * ((count + 31) / 32 * 32);
}

/* Collect the entries of the first `cells` cells in order, and the rows that are in no cell. */
static int lsq_cells_begin(const lsq_cells_plan *plan, lsq_cells_work *work, int64_t cells, lsq_visits *visits) {
    const lsq_column *column = &plan->codes.column;
    int ended = LSQ_FINE;
    work->entries = 0;
    for (int64_t i = 0; i < cells; i++) {
        const int64_t cell = work->order[i].cell;
        if (i + 1 < work->ordered) lsq_cells_prefetch(plan, work->order[i + 1].cell);
        for (int64_t part = 2 * cell; part < 2 * cell + 2 && !ended; part++) {
            const uint8_t *payload = (const uint8_t *)(uintptr_t)plan->cells.addresses[part];
            const int64_t count = plan->cells.sizes[part];
            if (count) ended = lsq_cells_collect(plan, work, payload, count, lsq_cells_rows(plan, payload, count), 0, 0);
            visits->rows += count;
        }
        visits->cells++;
    }
    for (int64_t i = column->records - 1; i >= 0 && !ended; i--) {
        const uint32_t start = column->starts[i], count = column->counts[i];
        if (start + count <= plan->fresh) break;
        const int64_t skip = start < plan->fresh ? plan->fresh - start : 0;
        visits->rows += count - skip;
        ended = lsq_cells_collect(plan, work, lsq_payload(column, i), count, NULL, start, skip);
    }
    return ended;
}

/* Scan the cells in order from `first` to `last`, and take the rows whose sums are not above `limit`. */
static int lsq_cells_visit(const lsq_cells_plan *plan, lsq_cells_work *work, int64_t first, int64_t last, uint16_t limit,
                           lsq_visits *visits) {
    const int far = first >= LSQ_RANKED; /* then sums are unlike those of the first cells */
    work->entries = 0;
    for (int64_t i = first; i < last; i++) {
        const int64_t cell = work->order[i].cell;
        if (i + 1 < work->ordered) lsq_cells_prefetch(plan, work->order[i + 1].cell);
        for (int64_t part = 2 * cell; part < 2 * cell + 2; part++) {
            const uint8_t *payload = (const uint8_t *)(uintptr_t)plan->cells.addresses[part];
            const int64_t count = plan->cells.sizes[part];
            if (!count) continue;
            const uint8_t *rows = lsq_cells_rows(plan, payload, count);
            const int64_t read = lsq_cells_read(plan, work, payload, count, 0, 0, limit);
            if (read < 0) return LSQ_NO_MEMORY;
            visits->rows += count;
            if (far) lsq_moments_add(&work->entry_moments, work->entry_sums, count / 32 * 32, LSQ_LARGEST);
            for (int64_t at = 0; at < read; at += 32)
                for (uint32_t mask = work->entry_masks[at / 32]; mask; mask &= mask - 1) {
                    const int64_t entry = at + LSQ_LOWEST(mask);
                    const uint32_t row = lsq_load32(rows + 4 * entry);
                    const uint16_t sum = work->entry_sums[lsq_sum_place(entry)];
                    if (!plan->depth ? lsq_cells_take(plan, work, row, sum) < 0
                                     : lsq_cells_may(plan, row) && !lsq_hit(&work->hits, row, sum))
                        return LSQ_NO_MEMORY;
                }
        }
        visits->cells++;
    }
    return LSQ_FINE;
}

/* ---- exact distances ------------------------------------------------------------------------------------------------ */

/* The k smallest distances are a heap, the largest first. */
static void lsq_best_add(lsq_cells_work *work, int64_t k, float distance) {
    float *heap = work->best;
    int64_t at = 0;
    if (work->best_count < k) {
        for (at = work->best_count++; at && heap[(at - 1) / 2] < distance; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
        heap[at] = distance;
        return;
    }
    if (!(distance < heap[0])) return;
    for (int64_t child; (child = 2 * at + 1) < k; at = child) {
        if (child + 1 < k && heap[child + 1] > heap[child]) child++;
        if (!(heap[child] > distance)) break;
        heap[at] = heap[child];
    }
    heap[at] = distance;
}

LSQ_INLINE float lsq_cells_kth(const lsq_cells_plan *plan, const lsq_cells_work *work) {
    return work->best_count < plan->k || work->best[0] > plan->limit ? plan->limit : work->best[0];
}

/* Take the best of the entries collected, and some that were not chosen. */
static int lsq_cells_first(const lsq_cells_plan *plan, lsq_cells_work *work) {
    const int64_t n = work->entries;
    /* A row may be in two cells, or may not be found: then more entries are needed. */
    for (int64_t want = plan->k + LSQ_MORE; work->taken < plan->k; want *= 2) {
        const uint16_t bound = lsq_bound(plan->level, work->entry_sums, n, 0, want, work->entry_bounds);
        int64_t some = lsq_within(plan->level, work->entry_sums, n, 0, bound, work->entry_places);
        if (some > 2 * want) some = 2 * want; /* many may be equally far */
        for (int64_t i = 0; i < some; i++) {
            const int64_t place = work->entry_places[i];
            if (lsq_cells_take(plan, work, work->entry_rows[lsq_lane(place)], work->entry_sums[place]) < 0) return LSQ_NO_MEMORY;
        }
        if (want >= n) break;
    }
    for (int64_t i = 0; i < LSQ_SAMPLED; i++) {
        const int64_t place = i * n / LSQ_SAMPLED;
        if (place < n && work->entry_sums[place] < LSQ_LARGEST &&
            lsq_cells_take(plan, work, work->entry_rows[lsq_lane(place)], work->entry_sums[place]) < 0)
            return LSQ_NO_MEMORY;
    }
    return LSQ_FINE;
}

/* Take all entries collected whose sums are not above the limit. */
static int lsq_cells_again(const lsq_cells_plan *plan, lsq_cells_work *work, int32_t limit) {
    if (limit < 0) return LSQ_FINE;
    const uint16_t high = (uint16_t)(limit < LSQ_LARGEST ? limit : LSQ_LARGEST - 1);
    const int64_t some = lsq_within(plan->level, work->entry_sums, work->entries, 0, high, work->entry_places);
    for (int64_t i = 0; i < some; i++) {
        const int64_t place = work->entry_places[i];
        if (lsq_cells_take(plan, work, work->entry_rows[lsq_lane(place)], work->entry_sums[place]) < 0) return LSQ_NO_MEMORY;
    }
    return LSQ_FINE;
}

/* The best of all entries so far, as many as `depth` says. */
static int lsq_cells_best(const lsq_cells_plan *plan, lsq_cells_work *work) {
    lsq_hits *hits = &work->hits;
    for (int64_t i = 0; i < work->entries; i++)
        if (work->entry_sums[i] < LSQ_LARGEST && lsq_cells_may(plan, work->entry_rows[lsq_lane(i)]) &&
            !lsq_hit(hits, work->entry_rows[lsq_lane(i)], work->entry_sums[i]))
            return LSQ_NO_MEMORY;
    work->entries = 0;
    if (!lsq_hits_prune(hits)) return LSQ_NO_MEMORY;
    for (int64_t i = 0; i < hits->count; i++)
        if (lsq_cells_take(plan, work, hits->rows[i], hits->sums[i]) < 0) return LSQ_NO_MEMORY;
    return LSQ_FINE;
}

/* Compare what was taken. */
static int lsq_cells_compare(const lsq_cells_plan *plan, lsq_cells_work *work, lsq_visits *visits) {
    const int64_t n = work->taken;
    if (plan->kept) {
        for (int64_t i = 0; work->verify && i < n; i++) {
            int64_t record = lsq_record(&plan->kept->column, work->rows[i]);
            if (record >= 0 && !plan->verified[record]) return LSQ_UNVERIFIED;
        }
        if (plan->rerank(plan->kept->kind, plan->metric, &plan->kept->column, plan->dim, &work->target,
                       work->rows, n, work->exact) >= 0)
            return LSQ_NO_VECTOR;
    } else if (!lsq_distances(plan->level, &plan->codes, plan->nibbles, work->values, work->bias, work->rows, n, work->lookups,
                              work->exact)) {
        return LSQ_NO_VECTOR;
    }
    for (int64_t i = 0; i < n; i++) {
        lsq_best_add(work, plan->k, work->exact[i]);
        if (work->exact[i] <= lsq_cells_kth(plan, work) && !lsq_offer(&work->nearest, work->rows[i], work->exact[i]))
            return LSQ_NO_MEMORY;
    }
    if (!plan->depth) lsq_points_add(&work->points, work->estimates, work->exact, n);
    visits->compared += n;
    work->taken = 0;
    return LSQ_FINE;
}

/* ---- the rule ------------------------------------------------------------------------------------------------------- */

/* A centre is ranked if it is no more than so many deviations farther by its code than it should be. */
#define LSQ_CENTRE_MARGIN 1.5

/* How many rows of the cells that are left are expected to be nearer than the k-th, at most. */
static double lsq_cells_left(const lsq_cells_plan *plan, const lsq_cells_work *work, int64_t visited) {
    const lsq_cells *cells = &plan->cells;
    const lsq_ranked next = work->order[visited];
    double mean = next.distance, deviation = plan->tau * cells->spreads[next.cell];
    if (plan->metric == LSQ_COSINE) {
        const double near = cells->near[next.cell];
        mean = 1 - near * (1 - next.distance);
        deviation = plan->tau * sqrt(near < 1 ? 1 - near * near : 0);
    } else if (plan->metric == LSQ_IP) {
        deviation *= sqrt(work->target.square);
    } else {
        mean += (double)cells->spreads[next.cell] * cells->spreads[next.cell];
        deviation *= 2 * sqrt(next.distance > 0 ? next.distance : 0);
    }
    const double rows = (double)cells->entries / (double)cells->count * (double)(cells->count - visited);
    return rows * lsq_normal_tail((mean - lsq_cells_kth(plan, work)) / (deviation > 0 ? deviation : 1e-30));
}

/* Up to which place in the order cells are to be visited now; `visited`: no more. */
static int64_t lsq_cells_until(const lsq_cells_plan *plan, const lsq_cells_work *work, int64_t visited, lsq_visits *visits) {
    int64_t end = visited + LSQ_LOOK < work->ordered ? visited + LSQ_LOOK : work->ordered;
    if (plan->probes) return end < plan->probes ? end : plan->probes > visited ? plan->probes : visited;
    const float farthest = lsq_cells_kth(plan, work) + plan->reach;
    while (end > visited && !(work->order[end - 1].distance <= farthest - plan->slope * log2f((float)end))) end--;
    if (end > visited) return end;
    visits->left = lsq_cells_left(plan, work, visited);
    if (visits->left <= plan->misses) return visited;
    return visited + LSQ_LOOK < work->ordered ? visited + LSQ_LOOK : work->ordered;
}

/* Rank the cells, too, whose centres may be as near as those visited, or within reach: codes tell that with an error. Whether
 * there are any; -1 where the vector of a centre is missing. */
static int lsq_cells_more(const lsq_cells_plan *plan, lsq_cells_work *work, int64_t visited) {
    const lsq_line line = lsq_line_of(&work->centre_points);
    const int64_t old = work->ordered;
    if (old == plan->cells.count) return 0;
    float farthest = lsq_cells_kth(plan, work) + plan->reach - plan->slope * log2f((float)(visited + 1));
    if (visited > LSQ_RANKED && work->order[visited - 1].distance > farthest) farthest = work->order[visited - 1].distance;
    /* Where codes tell nothing, all are. */
    const uint16_t high = line.slope > 0 ? lsq_ceiling(lsq_line_below(&line, &work->centre_moments, farthest, LSQ_CENTRE_MARGIN))
                                         : LSQ_LARGEST;
    if (high <= work->reached) return 0;
    if (lsq_cells_order(plan, work, visited, high < LSQ_LARGEST ? high : LSQ_LARGEST - 1)) return -1;
    return work->ordered > old;
}

/* The largest sum of rows that are worth comparing; -1 where none are. */
static int32_t lsq_cells_limit(const lsq_cells_plan *plan, const lsq_cells_work *work) {
    if (work->best_count < plan->k) return LSQ_LARGEST;
    const double kth = lsq_cells_kth(plan, work);
    if (!plan->kept) {
        /* Estimates are rounded distances of codes, each look-up by half a step at most: nothing need be lost. */
        const double rounded = plan->nibbles ? (double)plan->codes.width + work->scale.slack : 1;
        return lsq_ceiling((kth - work->scale.base) / work->scale.step + rounded);
    }
    const double margin = lsq_normal_quantile(plan->lost);
    const lsq_line line = lsq_line_of(&work->points);
    if (line.slope > 0) return lsq_ceiling(lsq_line_below(&line, &work->entry_moments, kth, margin));
    /* Estimates tell nothing; unless all rows are as far as the k-th, and then only those of smaller estimates can be nearer. */
    return line.around > 0 || kth > line.start ? LSQ_LARGEST : (int32_t)line.mean - 1;
}

/* ---- the search of one query ---------------------------------------------------------------------------------------- */

/* Make the tables of `n` queries, LSQ_TABLES_AT_ONCE at most. */
static inline void lsq_cells_make(const lsq_cells_plan *plan, lsq_cells_work *work, const float *queries, int64_t n) {
    lsq_tables_of(plan->level, plan->linear, queries, n, work->made, work->made + LSQ_TABLES_AT_ONCE * plan->lookups, work->made_work);
}

/* The nearest rows of a query are in work->nearest. Its tables are `values` and `bias`, or, where that is NULL, those that were
 * made of query number `made`. */
static int lsq_cells_search(const lsq_cells_plan *plan, lsq_cells_work *work, const float *query, const float *values, float bias,
                            int64_t made, lsq_visits *visits) {
    int64_t visited;
    int ended;
    memset(visits, 0, sizeof(*visits));
    work->values = values ? values : work->made + made * plan->lookups;
    work->bias = values ? bias : work->made[LSQ_TABLES_AT_ONCE * plan->lookups + made];
    work->target = lsq_target_of(plan->metric, query, plan->dim, work->numbers);
    work->best_count = work->taken = work->nearest.count = 0;
    work->points = (lsq_points){0, 0, 0, 0, 0, 0, 0, 0};
    work->nearest.worst = plan->limit;
    work->verify = plan->verified && memchr(plan->verified, 0, (size_t)plan->kept->column.records);
    lsq_seen_clear(&work->seen);
    lsq_hits_again(&work->hits, lsq_cells_depth(plan));
    lsq_cells_tables(plan, work);
    if ((ended = lsq_cells_rank(plan, work))) return ended;
    visited = plan->probes && plan->probes < LSQ_FIRST ? plan->probes : LSQ_FIRST;
    if (visited > work->ordered) visited = work->ordered;
    if ((ended = lsq_cells_begin(plan, work, visited, visits))) return ended;
    if (!plan->depth) {
        if ((ended = lsq_cells_first(plan, work))) return ended;
        if ((ended = lsq_cells_compare(plan, work, visits))) return ended;
        work->entry_moments = (lsq_moments){0, 0, 0};
        lsq_moments_add(&work->entry_moments, work->entry_sums, work->entries, LSQ_LARGEST);
        if ((ended = lsq_cells_again(plan, work, lsq_cells_limit(plan, work)))) return ended;
    }
    for (;;) {
        if (plan->depth && (ended = lsq_cells_best(plan, work))) return ended;
        if ((ended = lsq_cells_compare(plan, work, visits))) return ended;
        if (visited == work->ordered) {
            if (visited == plan->cells.count) break;
            if ((ended = lsq_cells_next(plan, work, visited))) return ended;
        }
        const int64_t until = lsq_cells_until(plan, work, visited, visits);
        if (until <= visited) {
            if (plan->probes || !(ended = lsq_cells_more(plan, work, visited))) break;
            if (ended < 0) return LSQ_NO_VECTOR;
            continue;
        }
        const int32_t limit = plan->depth ? work->hits.limit : lsq_cells_limit(plan, work);
        if ((ended = lsq_cells_visit(plan, work, visited, until, (uint16_t)(limit > 0 ? limit : 0), visits))) return ended;
        visited = until;
    }
    return lsq_nearest_prune(&work->nearest) ? LSQ_FINE : LSQ_NO_MEMORY;
}

#endif

/* The search of cells: a query visits the cells that may hold its neighbours, nearest first, until those left hold few.

   For one query:

       1  centres are ranked by their codes (sums.h), and the best of them exactly
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

   Which rows are compared. Over those compared so far, distances are a line in the estimates, give or take s. A row is
   compared if it would be at kth when it were z deviations nearer than the line has it; z so that of about as many rows as
   were compared, each with that probability, `lost` of the k nearest are lost.

   reach, slope, tau and lost are measured when cells are made (_subsets/cells/calibration.py). */
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
#include "scan.h"

/* ---- scanning ------------------------------------------------------------------------------------------------------- */

/* Whether a row that a cell names may be found. */
LSQ_INLINE int lsq_cells_may(const lsq_cells_plan *plan, uint32_t row) {
    const uint32_t chunk = row / plan->chunk_rows;
    return chunk < plan->chunks && plan->there[chunk] && lsq_may(&plan->codes.filter, row);
}

/* Rows of a record whose sums are not above the limit, from row `skip` of the record on. `rows`: their numbers, where they
 * are entries of a cell; NULL where they follow each other from `start` on. */
static int lsq_cells_scan(const lsq_cells_plan *plan, lsq_cells_work *work, const uint8_t *payload, int64_t count,
                          const uint8_t *rows, uint32_t start, int64_t skip) {
    const int64_t blocks = (count + 31) / 32;
    lsq_hits *hits = &work->hits;
    uint16_t sums[LSQ_RUN * LSQ_BLOCK_ROWS];
    uint32_t masks[LSQ_RUN];
    for (int64_t at = skip / 32; at < blocks;) {
        /* Limits are as of the beginning of a run: short ones until there are some. */
        int64_t some = hits->limit == LSQ_LARGEST ? 2 : LSQ_RUN;
        if (some > blocks - at) some = blocks - at;
        lsq_cells_sums(plan, work, lsq_block_in(payload, plan->codes.width, plan->codes.head, (uint64_t)at), some, hits->limit,
                       sums, masks);
        if ((at + some) * 32 > count) masks[some - 1] &= (1u << (count & 31)) - 1;
        if (at * 32 < skip) masks[0] &= ~0u << (skip & 31);
        for (int64_t b = 0; b < some; b++)
            for (uint32_t mask = masks[b]; mask; mask &= mask - 1) {
                const int lane = LSQ_LOWEST(mask);
                const int64_t entry = (at + b) * 32 + lane;
                const uint32_t row = rows ? lsq_load32(rows + 4 * entry) : start + (uint32_t)entry;
                const int may = rows ? lsq_cells_may(plan, row) : lsq_may(&plan->codes.filter, row);
                if (may && !lsq_hit(hits, row, lsq_cells_sum(sums + b * 32, lane)))
                    return LSQ_NO_MEMORY;
            }
        at += some;
        for (; work->sampled < LSQ_SAMPLED && work->sampled < hits->count; work->sampled++) {
            work->sample_rows[work->sampled] = hits->rows[work->sampled];
            work->sample_sums[work->sampled] = hits->sums[work->sampled];
        }
    }
    return LSQ_FINE;
}

LSQ_INLINE void lsq_cells_prefetch(const lsq_cells_plan *plan, int64_t cell) {
    const uint8_t *payload = (const uint8_t *)(uintptr_t)plan->cells.addresses[2 * cell];
    int64_t size = plan->cells.sizes[2 * cell] * plan->codes.width;
    if (size > LSQ_AHEAD) size = LSQ_AHEAD;
    for (int64_t at = -LSQ_HEADER; size && at < size; at += LSQ_LINE) LSQ_PREFETCH(payload + at);
}

/* Scan the cells in order from `first` to `last`. */
static int lsq_cells_visit(const lsq_cells_plan *plan, lsq_cells_work *work, int64_t first, int64_t last, lsq_visits *visits) {
    for (int64_t i = first; i < last; i++) {
        const int64_t cell = work->order[i].cell;
        if (i + 1 < work->ordered) lsq_cells_prefetch(plan, work->order[i + 1].cell);
        for (int64_t part = 2 * cell; part < 2 * cell + 2; part++) {
            const uint8_t *payload = (const uint8_t *)(uintptr_t)plan->cells.addresses[part];
            const int64_t count = plan->cells.sizes[part];
            if (!count) continue;
            visits->rows += count;
            int ended = lsq_cells_scan(plan, work, payload, count, payload + plan->codes.width * ((count + 31) / 32 * 32), 0, 0);
            if (ended) return ended;
        }
        visits->cells++;
    }
    return LSQ_FINE;
}

/* Scan the rows that are in no cell. */
static int lsq_cells_fresh(const lsq_cells_plan *plan, lsq_cells_work *work, lsq_visits *visits) {
    const lsq_column *column = &plan->codes.column;
    for (int64_t i = column->records - 1; i >= 0; i--) {
        const uint32_t start = column->starts[i], count = column->counts[i];
        if (start + count <= plan->fresh) break;
        const int64_t skip = start < plan->fresh ? plan->fresh - start : 0;
        visits->rows += count - skip;
        int ended = lsq_cells_scan(plan, work, lsq_payload(column, i), count, NULL, start, skip);
        if (ended) return ended;
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

/* Hits that were not compared yet, and whose sums are not above the limit, are taken, up to `most`. */
static int lsq_cells_take(lsq_cells_work *work, int32_t limit, int64_t most) {
    lsq_hits *hits = &work->hits;
    for (int64_t i = 0; i < hits->count && work->taken < most; i++) {
        if (hits->sums[i] > limit) continue;
        int new = lsq_seen_add(&work->seen, hits->rows[i]);
        if (new < 0 || (work->taken == work->room && !lsq_cells_room(work, 2 * work->room))) return LSQ_NO_MEMORY;
        work->rows[work->taken] = hits->rows[i];
        work->estimates[work->taken] = (float)hits->sums[i];
        work->taken += new;
    }
    return LSQ_FINE;
}

/* Take the best of what was found first, and the sample. */
static int lsq_cells_first(const lsq_cells_plan *plan, lsq_cells_work *work) {
    lsq_hits *hits = &work->hits;
    uint16_t limit = hits->limit;
    const int64_t depth = lsq_cells_depth(plan);
    if (hits->count > depth) {
        memcpy(hits->work, hits->sums, (size_t)hits->count * sizeof(uint16_t));
        limit = lsq_kth_sum(hits->work, hits->count, depth);
    }
    /* Many may be equally far. */
    int ended = lsq_cells_take(work, limit, 2 * depth);
    for (int i = 0; !ended && !plan->depth && i < work->sampled; i++) {
        int new = lsq_seen_add(&work->seen, work->sample_rows[i]);
        if (new < 0 || (work->taken == work->room && !lsq_cells_room(work, 2 * work->room))) return LSQ_NO_MEMORY;
        work->rows[work->taken] = work->sample_rows[i];
        work->estimates[work->taken] = (float)work->sample_sums[i];
        work->taken += new;
    }
    return ended;
}

/* Compare what was taken. */
static int lsq_cells_compare(const lsq_cells_plan *plan, lsq_cells_work *work, lsq_visits *visits) {
    const int64_t n = work->taken;
    if (plan->kept) {
        for (int64_t i = 0; plan->verified && i < n; i++) {
            int64_t record = lsq_record(&plan->kept->column, work->rows[i]);
            if (record >= 0 && !plan->verified[record]) return LSQ_UNVERIFIED;
        }
        if (lsq_rerank(plan->exact_level, plan->kept->kind, plan->metric, &plan->kept->column, plan->dim, &work->target,
                       work->rows, n, work->exact) >= 0)
            return LSQ_NO_VECTOR;
    } else if (!lsq_distances(plan->level, &plan->codes, plan->nibbles, work->values, work->bias, work->rows, n, work->lookups,
                              work->exact)) {
        return LSQ_NO_VECTOR;
    }
    for (int64_t i = 0; i < n; i++) {
        lsq_best_add(work, plan->k, work->exact[i]);
        if (!lsq_offer(&work->nearest, work->rows[i], work->exact[i])) return LSQ_NO_MEMORY;
    }
    visits->compared += n;
    work->taken = 0;
    return LSQ_FINE;
}

/* ---- the rule ------------------------------------------------------------------------------------------------------- */

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

/* The largest sum of rows that are worth comparing; -1 where none are. */
static int32_t lsq_cells_limit(const lsq_cells_plan *plan, const lsq_cells_work *work, lsq_line line, int64_t compared) {
    if (work->best_count < plan->k) return LSQ_LARGEST;
    /* Estimates of codes are rounded distances of codes: nothing need be lost. */
    const double margin = plan->kept ? lsq_normal_quantile(plan->lost * (double)plan->k / (double)(compared + 1)) : 6;
    if (line.slope > 0) return lsq_ceiling((lsq_cells_kth(plan, work) + margin * line.around - line.start) / line.slope);
    /* Estimates tell nothing; unless all rows are equal, and then only those of smaller estimates can be nearer. */
    return line.around > 0 ? LSQ_LARGEST : (int32_t)line.mean - 1;
}

/* ---- the search of one query ---------------------------------------------------------------------------------------- */

/* The nearest rows of a query, whose tables are `values` and `bias`, are in work->nearest. */
static int lsq_cells_search(const lsq_cells_plan *plan, lsq_cells_work *work, const float *query, const float *values, float bias,
                            lsq_visits *visits) {
    lsq_hits *hits = &work->hits;
    int64_t visited;
    int ended;
    memset(visits, 0, sizeof(*visits));
    work->values = values;
    work->bias = bias;
    work->target = lsq_target_of(plan->metric, query, plan->dim, work->numbers);
    work->best_count = work->sampled = work->taken = work->nearest.count = 0;
    work->nearest.worst = plan->limit;
    lsq_seen_clear(&work->seen);
    lsq_hits_again(hits, lsq_cells_kept(plan));
    lsq_cells_tables(plan, work);
    if ((ended = lsq_cells_rank(plan, work))) return ended;
    visited = plan->probes && plan->probes < LSQ_FIRST ? plan->probes : LSQ_FIRST;
    if (visited > work->ordered) visited = work->ordered;
    if ((ended = lsq_cells_visit(plan, work, 0, visited, visits)) || (ended = lsq_cells_fresh(plan, work, visits))) return ended;
    if (!lsq_hits_prune(hits) || (ended = lsq_cells_first(plan, work))) return LSQ_NO_MEMORY;
    const int64_t first = work->taken;
    if ((ended = lsq_cells_compare(plan, work, visits))) return ended;
    const lsq_line line = lsq_fit(work->estimates, work->exact, first);
    if (!plan->depth) {
        const int32_t limit = lsq_cells_limit(plan, work, line, visits->compared);
        if (limit > hits->limit) { /* so many were not kept */
            const lsq_visits before = *visits;
            lsq_hits_again(hits, LSQ_ALL);
            hits->limit = hits->ceiling = (uint16_t)limit;
            if ((ended = lsq_cells_visit(plan, work, 0, visited, visits)) || (ended = lsq_cells_fresh(plan, work, visits))) return ended;
            *visits = before;
        }
    }
    for (;;) {
        int32_t limit = hits->limit;
        if (!plan->depth) {
            limit = lsq_cells_limit(plan, work, line, visits->compared);
            hits->limit = hits->ceiling = limit > 0 ? (uint16_t)limit : 0;
            hits->k = LSQ_ALL;
        }
        if ((ended = lsq_cells_take(work, limit, INT64_MAX)) || (ended = lsq_cells_compare(plan, work, visits))) return ended;
        if (!plan->depth) hits->count = 0;
        if (visited == work->ordered) {
            if (visited == plan->cells.count) break;
            if ((ended = lsq_cells_order(plan, work, visited))) return ended;
        }
        const int64_t until = lsq_cells_until(plan, work, visited, visits);
        if (until <= visited) break;
        if ((ended = lsq_cells_visit(plan, work, visited, until, visits))) return ended;
        visited = until;
        if (plan->depth && !lsq_hits_prune(hits)) return LSQ_NO_MEMORY;
    }
    return lsq_nearest_prune(&work->nearest) ? LSQ_FINE : LSQ_NO_MEMORY;
}

#endif

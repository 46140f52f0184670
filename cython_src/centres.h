/* The order in which a query visits cells: by the codes of their centres (sums.h), and then the best exactly. */
#ifndef LSQ_CENTRES_H
#define LSQ_CENTRES_H

#include <stdint.h>
#include <stdlib.h>

#include "cells_work.h"
#include "distances.h"
#include "rerank.h"
#include "sums.h"

/* ---- sums of codes -------------------------------------------------------------------------------------------------- */

/* Look-ups of the query. Estimates are base + step * sum. */
static void lsq_cells_tables(const lsq_cells_plan *plan, lsq_cells_work *work) {
    const lsq_codes *codes = &plan->codes;
    const int64_t nibbles = 2 * codes->width;
    float bias = work->bias;
    if (!plan->nibbles) {
        /* Field after field: the range of all sums in 65,534 steps. */
        double least = work->bias, most = work->bias;
        for (int64_t f = 0; f < codes->fields.count; f++) {
            const float *table = work->values + codes->fields.starts[f];
            float low = table[0], high = table[0];
            for (int64_t l = 1; l < codes->fields.levels[f]; l++) {
                if (table[l] < low) low = table[l];
                if (table[l] > high) high = table[l];
            }
            least += low, most += high;
        }
        work->scale.base = least;
        work->scale.step = most > least ? (most - least) / (LSQ_LARGEST - 1) : 1;
        return;
    }
    double loss;
    lsq_nibble_tables(work->values, &codes->fields, codes->width, work->lookups, &bias);
    lsq_least(plan->level, work->lookups, nibbles, work->low, work->high);
    work->wide = lsq_wide_columns(work->low, work->high, nibbles, codes->head);
    const double step = lsq_finest_step(work->low, work->high, nibbles, work->wide);
    work->scale = lsq_make_scale(work->low, work->high, nibbles, bias, step);
    lsq_quantize(plan->level, work->lookups, work->low, 2 * work->wide, step, 0.5, (LSQ_QUANTUM << LSQ_WIDE_BITS) + LSQ_QUANTUM,
                 work->quantized, &loss);
    lsq_quantize(plan->level, work->lookups + work->wide * LSQ_LOOKUPS, work->low + 2 * work->wide,
                 2 * (codes->width - work->wide), step, 0.5, LSQ_QUANTUM, work->quantized + work->wide * LSQ_LOOKUPS, &loss);
    lsq_spread(work->quantized, codes->head, 0, LSQ_QUANTUM, work->tables, LSQ_PAIR);
    lsq_spread(work->quantized + codes->head * LSQ_LOOKUPS, codes->width - codes->head, 0, LSQ_QUANTUM,
               work->tables + lsq_head_pairs(codes) * LSQ_PAIR, LSQ_PAIR);
    lsq_spread(work->quantized, work->wide, LSQ_WIDE_BITS, LSQ_QUANTUM, work->tables + lsq_own_pairs(codes) * LSQ_PAIR, LSQ_PAIR);
}

/* Where the sum of a row of a block is, as sums.h has them. */
LSQ_INLINE uint16_t lsq_cells_sum(const uint16_t *sums, int lane) { return sums[(lane & 1) * 16 + lane / 2]; }

/* Sums of a run of blocks, and masks of those that are not above the limit. */
static void lsq_cells_sums(const lsq_cells_plan *plan, const lsq_cells_work *work, lsq_block block, int64_t blocks, uint16_t limit,
                           uint16_t *sums, uint32_t *masks) {
    const lsq_codes *codes = &plan->codes;
    const int64_t head = block.heads * LSQ_BLOCK_ROWS, tail = block.tails * LSQ_BLOCK_ROWS;
    if (!plan->nibbles) {
        for (int64_t b = 0; b < blocks; b++, block.head += head, block.tail += tail) {
            float distances[LSQ_BLOCK_ROWS];
            lsq_field_distances(plan->level, &block, &codes->fields, work->values, work->bias, distances);
            masks[b] = 0;
            for (int lane = 0; lane < LSQ_BLOCK_ROWS; lane++) {
                uint16_t sum = lsq_ceiling((distances[lane] - work->scale.base) / work->scale.step);
                sums[b * LSQ_BLOCK_ROWS + (lane & 1) * 16 + lane / 2] = sum;
                masks[b] |= (uint32_t)(sum <= limit) << lane;
            }
        }
        return;
    }
    if (work->wide) {
        lsq_work upper = {block.head, work->wide, head, blocks, NULL, work->tables + lsq_own_pairs(codes) * LSQ_PAIR, LSQ_PAIR,
                          sums, LSQ_BLOCK_ROWS, 0, 0, 0, &limit, masks};
        lsq_sums(plan->level, 16, 1, &upper);
    }
    lsq_work heads = {block.head, block.heads, head, blocks, NULL, work->tables, LSQ_PAIR, sums, LSQ_BLOCK_ROWS,
                      work->wide > 0, LSQ_WIDE_BITS, 0, &limit, masks};
    lsq_sums(plan->level, 16, 1, &heads);
    if (!block.tails) return;
    lsq_work tails = {block.tail, block.tails, tail, blocks, NULL, work->tables + lsq_head_pairs(codes) * LSQ_PAIR, LSQ_PAIR,
                      sums, LSQ_BLOCK_ROWS, 1, 0, 0, &limit, masks};
    lsq_sums(plan->level, 16, 1, &tails);
}

/* ---- centres -------------------------------------------------------------------------------------------------------- */

static int lsq_by_centre(const void *left, const void *right) {
    const lsq_ranked *a = (const lsq_ranked *)left, *b = (const lsq_ranked *)right;
    if (a->distance != b->distance) return a->distance < b->distance ? -1 : 1;
    return (a->cell > b->cell) - (a->cell < b->cell);
}

/* By insertion, where there are few. */
static void lsq_sort_ranked(lsq_ranked *some, int64_t n) {
    if (n > 64) {
        qsort(some, (size_t)n, sizeof(lsq_ranked), lsq_by_centre);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        lsq_ranked own = some[i];
        int64_t at = i;
        for (; at && lsq_by_centre(&own, &some[at - 1]) < 0; at--) some[at] = some[at - 1];
        some[at] = own;
    }
}

enum { LSQ_BUCKETS = 256 };

/* Rank the next `more` cells by their estimates, or a few more, exactly; they follow those in order. */
static int lsq_cells_order(const lsq_cells_plan *plan, lsq_cells_work *work, int64_t more) {
    const int64_t n = plan->cells.count, old = work->ordered;
    const uint16_t *sums = work->sums;
    int64_t limit = LSQ_LARGEST, ordered = old;
    if (more < n - old) {
        uint32_t buckets[LSQ_BUCKETS] = {0};
        const int64_t low = work->reached + 1, width = (work->farthest - low) / LSQ_BUCKETS + 1;
        int64_t count = 0, b = 0;
        for (int64_t i = 0; i < n; i++)
            if (sums[i] >= low) buckets[(sums[i] - low) / width]++;
        for (; b < LSQ_BUCKETS - 1 && (count += buckets[b]) < more; b++) continue;
        limit = low + (b + 1) * width - 1;
    }
    for (int64_t i = 0; i < n; i++)
        if (sums[i] > work->reached && sums[i] <= limit) work->chosen[ordered++] = (uint32_t)i;
    work->reached = limit;
    if (lsq_rerank(plan->exact_level, LSQ_FLOAT16, plan->metric, &plan->cells.centres, plan->dim, &work->target,
                   work->chosen + old, ordered - old, work->distances + old) >= 0)
        return LSQ_NO_VECTOR;
    for (int64_t j = old; j < ordered; j++) {
        work->order[j].distance = work->distances[j];
        work->order[j].cell = work->chosen[j];
    }
    lsq_sort_ranked(work->order + old, ordered - old);
    work->ordered = ordered;
    return LSQ_FINE;
}

/* Sums of the codes of all centres; the nearest cells in order. */
static int lsq_cells_rank(const lsq_cells_plan *plan, lsq_cells_work *work) {
    const int64_t blocks = (plan->cells.count + 31) / 32, head = plan->codes.head, tail = plan->codes.width - head;
    uint16_t sums[LSQ_RUN * LSQ_BLOCK_ROWS];
    uint32_t masks[LSQ_RUN];
    work->farthest = 0;
    for (int64_t at = 0; at < blocks; at += LSQ_RUN) {
        const int64_t some = blocks - at < LSQ_RUN ? blocks - at : LSQ_RUN;
        lsq_block block = {plan->cells.centre_codes + at * 32 * head, plan->cells.centre_codes + (blocks * head + at * tail) * 32,
                           head, tail};
        lsq_cells_sums(plan, work, block, some, 0, sums, masks);
        for (int64_t i = 0; i < 32 * some; i++) {
            uint16_t sum = lsq_cells_sum(sums + (i & ~31), (int)(i & 31));
            work->sums[at * 32 + i] = sum;
            if (sum > work->farthest) work->farthest = sum;
        }
    }
    work->ordered = 0;
    work->reached = -1;
    return lsq_cells_order(plan, work, plan->probes > LSQ_RANKED ? plan->probes : LSQ_RANKED);
}

#endif

/* The order in which a query visits cells: by the codes of their centres (sums.h), and then the best exactly. */
#ifndef LSQ_CENTRES_H
#define LSQ_CENTRES_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cells_work.h"
#include "distances.h"
#include "rerank.h"
#include "smallest.h"
#include "sums.h"

/* ---- sums of codes -------------------------------------------------------------------------------------------------- */

/* Look-ups in whole steps, rounded to the nearest, at most `top`: no bounds, and in float. */
LSQ_INLINE void lsq_round_body(const float *exact, const float *low, int64_t nibbles, double step, float top, uint16_t *out) {
    const float steps = (float)(1 / step);
    for (int64_t i = 0; i < nibbles; i++)
        for (int n = 0; n < 16; n++) {
            float value = (exact[i * 16 + n] - low[i]) * steps + 0.5f;
            out[i * 16 + n] = (uint16_t)(int)(value < top ? value : top); /* so too where look-ups are not finite */
        }
}
LSQ_BODIES(lsq_round, (const float *exact, const float *low, int64_t nibbles, double step, float top, uint16_t *out),
           (exact, low, nibbles, step, top, out))

/* Look-ups of a query in whole steps, for sums of codes. */
static void lsq_cells_tables(const lsq_cells_plan *plan, lsq_cells_work *work) {
    const lsq_codes *codes = &plan->codes;
    const int64_t nibbles = 2 * codes->width;
    float bias = work->bias;
    work->wide = 0;
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
    lsq_nibble_tables(work->values, &codes->fields, codes->width, work->lookups, &bias);
    lsq_least(plan->level, work->lookups, nibbles, work->low, work->high);
    const int64_t wide = work->wide = lsq_wide_columns(work->low, work->high, nibbles, codes->head);
    const double step = lsq_finest_step(work->low, work->high, nibbles, wide);
    work->scale = lsq_make_scale(work->low, work->high, nibbles, bias, step);
    lsq_round(plan->level, work->lookups, work->low, 2 * wide, step, (LSQ_QUANTUM << LSQ_WIDE_BITS) + LSQ_QUANTUM, work->quantized);
    lsq_round(plan->level, work->lookups + wide * LSQ_LOOKUPS, work->low + 2 * wide, 2 * (codes->width - wide), step, LSQ_QUANTUM,
              work->quantized + wide * LSQ_LOOKUPS);
    lsq_spread(work->quantized, codes->head, 0, LSQ_QUANTUM, work->tables, LSQ_PAIR);
    lsq_spread(work->quantized + codes->head * LSQ_LOOKUPS, codes->width - codes->head, 0, LSQ_QUANTUM,
               work->tables + lsq_head_pairs(codes) * LSQ_PAIR, LSQ_PAIR);
    lsq_spread(work->quantized, wide, LSQ_WIDE_BITS, LSQ_QUANTUM, work->tables + lsq_own_pairs(codes) * LSQ_PAIR, LSQ_PAIR);
}

/* Which row of its run of blocks the sum in a place belongs to: sums.h has those of even rows first. */
LSQ_INLINE int64_t lsq_lane(int64_t place) { return (place & ~(int64_t)31) | (place & 15) << 1 | (place >> 4 & 1); }
LSQ_INLINE int64_t lsq_sum_place(int64_t lane) { return (lane & ~(int64_t)31) | (lane & 1) << 4 | (lane >> 1 & 15); }

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
                sums[lsq_sum_place(b * LSQ_BLOCK_ROWS + lane)] = sum;
                masks[b] |= (uint32_t)(sum <= limit) << lane;
            }
        }
        return;
    }
    if (work->wide) {
        lsq_work upper = {block.head, work->wide, head, blocks, NULL, work->tables + lsq_own_pairs(codes) * LSQ_PAIR, LSQ_PAIR,
                          sums, LSQ_BLOCK_ROWS, 0, 0, 0, 0, &limit, masks};
        lsq_sums(plan->level, 16, 1, &upper);
    }
    lsq_work heads = {block.head, block.heads, head, blocks, NULL, work->tables, LSQ_PAIR, sums, LSQ_BLOCK_ROWS,
                      work->wide > 0, LSQ_WIDE_BITS, 0, 0, &limit, masks};
    lsq_sums(plan->level, 16, 1, &heads);
    if (!block.tails) return;
    lsq_work tails = {block.tail, block.tails, tail, blocks, NULL, work->tables + lsq_head_pairs(codes) * LSQ_PAIR, LSQ_PAIR,
                      sums, LSQ_BLOCK_ROWS, 1, 0, 0, 0, &limit, masks};
    lsq_sums(plan->level, 16, 1, &tails);
}

/* ---- centres -------------------------------------------------------------------------------------------------------- */

/* A distance and a cell as one number: the order of the numbers is that of the distances, then of the cells. */
LSQ_INLINE uint64_t lsq_ranked_key(float distance, uint32_t cell) {
    uint32_t bits;
    memcpy(&bits, &distance, 4);
    bits ^= bits >> 31 ? 0xFFFFFFFFu : 0x80000000u;
    return (uint64_t)bits << 32 | cell;
}

LSQ_INLINE lsq_ranked lsq_ranked_of(uint64_t key) {
    lsq_ranked ranked = {0, (uint32_t)key};
    uint32_t bits = (uint32_t)(key >> 32);
    bits ^= bits >> 31 ? 0x80000000u : 0xFFFFFFFFu;
    memcpy(&ranked.distance, &bits, 4);
    return ranked;
}

static int lsq_by_key(const void *left, const void *right) {
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* By insertion, where there are few. */
static void lsq_sort_keys(uint64_t *keys, int64_t n) {
    if (n > 64) {
        qsort(keys, (size_t)n, sizeof(uint64_t), lsq_by_key);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        const uint64_t own = keys[i];
        int64_t at = i;
        for (; at && keys[at - 1] > own; at--) keys[at] = keys[at - 1];
        keys[at] = own;
    }
}

/* Rank the cells exactly whose sums are up to `high` and were not ranked yet. They are put in order among those from place
 * `from` on. */
static int lsq_cells_order(const lsq_cells_plan *plan, lsq_cells_work *work, int64_t from, uint16_t high) {
    const int64_t n = (plan->cells.count + 31) / 32 * 32, old = work->ordered;
    const int64_t ordered = old + lsq_within(plan->level, work->sums, n, (uint16_t)(work->reached + 1), high, work->chosen + old);
    for (int64_t i = old; i < ordered; i++) work->chosen[i] = (uint32_t)lsq_lane(work->chosen[i]);
    work->reached = high;
    work->ordered = ordered;
    /* Centres have the length 1 where only directions count. */
    const int cosine = plan->metric == LSQ_COSINE;
    if (plan->rerank(LSQ_FLOAT16, cosine ? LSQ_IP : plan->metric, &plan->cells.centres, plan->dim, &work->target,
                   work->chosen + old, ordered - old, work->distances + old) >= 0)
        return LSQ_NO_VECTOR;
    const float length = cosine && work->target.square > 0 ? (float)sqrt(work->target.square) : 1;
    for (int64_t i = old; cosine && i < ordered; i++) work->distances[i] = 1 + work->distances[i] / length;
    for (int64_t i = old; i < ordered; i++) work->estimated[i] = work->sums[lsq_sum_place(work->chosen[i])];
    lsq_points_add(&work->centre_points, work->estimated + old, work->distances + old, ordered - old);
    for (int64_t i = from; i < old; i++) work->keys[i] = lsq_ranked_key(work->order[i].distance, work->order[i].cell);
    for (int64_t i = old; i < ordered; i++) work->keys[i] = lsq_ranked_key(work->distances[i], work->chosen[i]);
    lsq_sort_keys(work->keys + from, ordered - from);
    for (int64_t i = from; i < ordered; i++) work->order[i] = lsq_ranked_of(work->keys[i]);
    return LSQ_FINE;
}

/* Rank the next `more` cells by their sums, or a few more. */
static int lsq_cells_next(const lsq_cells_plan *plan, lsq_cells_work *work, int64_t more) {
    const int64_t n = (plan->cells.count + 31) / 32 * 32;
    const uint16_t high = lsq_bound(plan->level, work->sums, n, (uint16_t)(work->reached + 1), more, work->bounds);
    return lsq_cells_order(plan, work, work->ordered, high);
}

/* Sums of the codes of all centres; the nearest cells in order. */
static int lsq_cells_rank(const lsq_cells_plan *plan, lsq_cells_work *work) {
    const int64_t blocks = (plan->cells.count + 31) / 32, head = plan->codes.head;
    const lsq_block block = {plan->cells.centre_codes, plan->cells.centre_codes + blocks * head * 32, head,
                             plan->codes.width - head};
    lsq_cells_sums(plan, work, block, blocks, 0, work->sums, work->masks);
    for (int64_t i = plan->cells.count; i < 32 * blocks; i++) work->sums[lsq_sum_place(i)] = LSQ_LARGEST;
    work->ordered = 0;
    work->reached = -1;
    work->centre_points = (lsq_points){0, 0, 0, 0, 0, 0, 0, 0};
    work->centre_moments = (lsq_moments){0, 0, 0};
    if (!plan->probes) lsq_moments_add(&work->centre_moments, work->sums, 32 * blocks, LSQ_LARGEST);
    return lsq_cells_next(plan, work, plan->probes > LSQ_RANKED ? plan->probes : LSQ_RANKED);
}

#endif

/* The progressive scan: the head of every row, the rest of those whose head is near.

   A row is looked at further if the sum of its head's look-ups is so many standard deviations (`z`, learned with the
   encoder) below the mean of a sample of rows. What is left is compared by sums of 8 bits, rounded to the nearest: the
   k-th smallest and all that are within a margin of rounding of it are evaluated exactly, if they may be within the limit
   of the search. All these bounds are fixed before the scan or by the set of all rows, never by the order in which rows
   are read.

   Afterwards the k-th distance is known (or the limit of the search, if fewer rows are within it), and with it where the
   heads of such rows lie: the sample tells how a head's sum depends on the whole (a line, and how far rows lie around it),
   and the rows found tell it of themselves, which may be of another kind than most. If the bound on heads was not well
   above, the answer is not to be trusted (`lsq_plan_sure`), and the caller reads all columns of all rows. */
#ifndef LSQ_PROGRESSIVE_H
#define LSQ_PROGRESSIVE_H

#include <math.h>
#include <stdint.h>

#include "quantize.h"

/* LSQ_SAMPLE: so many blocks are sampled. LSQ_REACH: the sum of 8 bits that stands for LSQ_FAR standard deviations below
 * the mean of all sums: what is farther is of no interest. */
enum { LSQ_SAMPLE = 32, LSQ_REACH = 245 };
#define LSQ_FAR 2.0
/* Rows at the k-th distance whose heads are less than so many deviations from their mean must have been looked at. */
#define LSQ_SURE 1.75
/* So must heads that are so many deviations above the mean of the rows found. */
#define LSQ_FOUND 1.6

/* Sums over sampled rows: of their heads' sums (16 bits, rounded down), of the whole rows', squares and products. */
typedef struct { int64_t rows, head, all, head_head, all_all, head_all; } lsq_moments;

LSQ_INLINE void lsq_moments_add(lsq_moments *moments, const uint16_t *head, const uint16_t *all, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        moments->head += head[i];
        moments->all += all[i];
        moments->head_head += (int64_t)head[i] * head[i];
        moments->all_all += (int64_t)all[i] * all[i];
        moments->head_all += (int64_t)head[i] * all[i];
    }
    moments->rows += n;
}

/* In steps of 16 bits, without what rounding down takes on the average. */
typedef struct {
    double head, all;     /* means */
    double slope, around; /* a head's sum: head + slope * (whole sum - all), give or take `around` */
    double limit;         /* heads above are not looked at further */
    double ratio;         /* a step of 8 bits */
    uint16_t head_limit;  /* `limit` in steps of 8 bits */
    int64_t margin;       /* what rounding may take, in steps of 8 bits */
    int possible;
} lsq_plan;

/* `widest`: how far apart, in steps of 16 bits, the look-ups of a nibble are at most; `slack`: what float32 may take. */
static lsq_plan lsq_make_plan(const lsq_moments *m, int64_t nibbles, int64_t head_nibbles, double z, double widest, double slack) {
    lsq_plan plan = {0};
    double n = (double)m->rows, head = (double)m->head / n, all = (double)m->all / n;
    double head_head = (double)m->head_head / n - head * head, all_all = (double)m->all_all / n - all * all;
    double head_all = (double)m->head_all / n - head * all;
    if (!(head_head > 0 && all_all > 0)) return plan;
    plan.head = head + (double)head_nibbles / 2;
    plan.all = all + (double)nibbles / 2;
    plan.slope = head_all / all_all;
    double around = head_head - plan.slope * head_all;
    plan.around = around > 0 ? sqrt(around) : 0;
    plan.limit = plan.head - z * sqrt(head_head);
    plan.ratio = (plan.all - LSQ_FAR * sqrt(all_all)) / LSQ_REACH;
    if (plan.ratio < 1) plan.ratio = 1;
    double limit = floor(plan.limit / plan.ratio + 0.5);
    plan.possible = limit > 0 && limit < 255 && widest <= LSQ_QUANTUM * plan.ratio && slack <= 1 + plan.ratio;
    plan.head_limit = plan.possible ? (uint16_t)limit : 0;
    plan.margin = (int64_t)ceil(3 * sqrt((double)nibbles / 12)) + 1;
    return plan;
}

/* The heads of rows that were evaluated, in sixteenths of a step: whole numbers, so their order does not matter. */
typedef struct { int64_t rows, sum, squares; } lsq_heads;

LSQ_INLINE void lsq_heads_add(lsq_heads *heads, double head) {
    int64_t whole = (int64_t)(head * 16);
    heads->rows++;
    heads->sum += whole;
    heads->squares += whole * whole;
}

/* Whether rows as far as `sum` (steps of 16 bits) will have been looked at. */
static int lsq_plan_sure(const lsq_plan *plan, double sum, const lsq_heads *found) {
    double n = (double)found->rows, mean = (double)found->sum / n / 16;
    double square = (double)found->squares / n / 256 - mean * mean;
    return plan->possible && plan->limit >= plan->head + plan->slope * (sum - plan->all) + LSQ_SURE * plan->around &&
           plan->limit >= mean + LSQ_FOUND * (square > 0 ? sqrt(square) : 0);
}

#endif

/* The scan: the k nearest of all codes, without reading a distance out of every row.

   By nibbles, in three steps: sums of quantized look-ups (quantize.h) for 32 rows at once (sums.h); rows whose sum is
   within a margin of the k-th smallest are kept (hits.h); these few are evaluated exactly, in float32, nibble after
   nibble, the same bits on every instruction set. The margin is a bound, so nothing is missed; or, in the progressive scan
   (progressive.h), a tested one.

   Codes whose fields do not fit nibbles (pq with 8 bits, say) are summed field after field instead, all of them exactly. */
#ifndef LSQ_SCAN_H
#define LSQ_SCAN_H

#include "codes.h"
#include "distances.h"
#include "hits.h"
#include "nearest.h"
#include "progressive.h"
#include "quantize.h"
#include "sums.h"

/* ---- a search ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const float *values; /* look-ups by field */
    float bias;
    float *exact; /* look-ups by nibble */
    lsq_scale scale;
    lsq_plan plan;
    double head_base; /* the sum of the least look-ups of the head */
    int64_t wide; /* so many columns have look-ups of two bytes; the same for all queries of a group */
} lsq_query;

/* Records may be scanned in several parts at the same time, each with its own hits; the last step joins them. */
typedef struct {
    const lsq_codes *codes;
    int level;
    int nibbles;     /* by nibbles, or by fields */
    int progressive; /* head first */
    int by_sums;     /* the k smallest sums are wanted, not the k nearest: what is found goes on to better distances */
    int streams;     /* one query, and more codes than a cache holds */
    int64_t nq, k, parts; /* k: LSQ_ALL for all rows within the limit */
    float limit;          /* farther rows are not wanted */
    lsq_query *queries;
    float *exact;         /* look-ups by nibble of all queries */
    uint8_t *tables;      /* quantized look-ups of groups of queries, one after another */
    lsq_hits *hits;       /* (parts, nq) */
    lsq_nearest *nearest; /* by fields (parts, nq), else (1, nq) */
} lsq_scan;

LSQ_INLINE int lsq_group_size(const lsq_scan *scan, int64_t group) {
    int64_t left = scan->nq - group * LSQ_GROUP;
    return left < LSQ_GROUP ? (int)left : LSQ_GROUP;
}

LSQ_INLINE uint8_t *lsq_group_tables(const lsq_scan *scan, int64_t group) {
    return scan->tables + group * LSQ_GROUP * lsq_pairs(scan->codes) * LSQ_PAIR;
}

/* Quantize the look-ups of query q, in steps of `step`, into its place in its group's tables; the loss of rounding down. */
static double lsq_write_tables(const lsq_scan *scan, int64_t q, const float *low, double step, double half, uint16_t *work) {
    const lsq_codes *codes = scan->codes;
    const int64_t wide = scan->queries[q].wide, stride = lsq_group_size(scan, q / LSQ_GROUP) * LSQ_PAIR;
    double loss, rest;
    uint8_t *to = lsq_group_tables(scan, q / LSQ_GROUP) + q % LSQ_GROUP * LSQ_PAIR;
    const float *exact = scan->queries[q].exact;
    lsq_quantize(scan->level, exact, low, 2 * wide, step, half, (LSQ_QUANTUM << LSQ_WIDE_BITS) + LSQ_QUANTUM, work, &loss);
    lsq_quantize(scan->level, exact + wide * LSQ_LOOKUPS, low + 2 * wide, 2 * (codes->width - wide), step, half, LSQ_QUANTUM,
                 work + wide * LSQ_LOOKUPS, &rest);
    lsq_spread(work, codes->head, 0, LSQ_QUANTUM, to, stride);
    lsq_spread(work + codes->head * LSQ_LOOKUPS, codes->width - codes->head, 0, LSQ_QUANTUM, to + lsq_head_pairs(codes) * stride, stride);
    lsq_spread(work, wide, LSQ_WIDE_BITS, LSQ_QUANTUM, to + lsq_own_pairs(codes) * stride, stride);
    return loss + rest;
}

/* Moments of the sums of sampled blocks, for the queries of a group. */
static void lsq_sample(const lsq_scan *scan, int64_t group, lsq_moments *moments) {
    const lsq_codes *codes = scan->codes;
    int nq = lsq_group_size(scan, group);
    uint16_t sums[LSQ_GROUP * LSQ_BLOCK_ROWS], heads[LSQ_GROUP * LSQ_BLOCK_ROWS], limits[LSQ_GROUP] = {0};
    uint32_t masks[LSQ_GROUP];
    int64_t stride = nq * LSQ_PAIR, blocks = 0, before = 0, record = -1, here = 0;
    const uint8_t *tables = lsq_group_tables(scan, group);
    for (int64_t i = 0; i < codes->column.records; i++) blocks += codes->column.counts[i] / LSQ_BLOCK_ROWS;
    memset(moments, 0, LSQ_GROUP * sizeof(lsq_moments));
    for (int64_t i = 0; blocks && i < LSQ_SAMPLE; i++) {
        int64_t at = i * blocks / LSQ_SAMPLE;
        while (at >= before + here) {
            before += here;
            here = codes->column.counts[++record] / LSQ_BLOCK_ROWS;
        }
        lsq_block block = lsq_block_at(codes, record, (uint64_t)(at - before));
        lsq_work first = {block.head, block.heads, 0, 1, NULL, tables, stride, sums, 0, 0, 0, 0, 0, limits, masks};
        lsq_sums(scan->level, 16, nq, &first);
        memcpy(heads, sums, sizeof(heads));
        lsq_work rest = {block.tail, block.tails, 0, 1, NULL, tables + lsq_head_pairs(codes) * stride, stride, sums, 0, 1, 0, 0, 0, limits, masks};
        lsq_sums(scan->level, 16, nq, &rest);
        for (int q = 0; q < nq; q++)
            lsq_moments_add(&moments[q], heads + q * LSQ_BLOCK_ROWS, sums + q * LSQ_BLOCK_ROWS, LSQ_BLOCK_ROWS);
    }
}

/* Memory for `nq` queries and `parts`; 0 without. lsq_scan_free gives it back in any case. */
static int lsq_scan_make(lsq_scan *scan, int64_t nq, int64_t parts) {
    int64_t size = scan->nibbles ? scan->codes->width * LSQ_LOOKUPS : 0, each = nq ? nq : 1;
    scan->nq = nq, scan->parts = parts;
    scan->queries = (lsq_query *)calloc((size_t)each, sizeof(lsq_query));
    scan->hits = (lsq_hits *)calloc((size_t)(parts * each), sizeof(lsq_hits));
    scan->nearest = (lsq_nearest *)calloc((size_t)(parts * each), sizeof(lsq_nearest));
    scan->exact = (float *)malloc((size_t)(nq * size + 1) * sizeof(float));
    scan->tables = (uint8_t *)malloc(scan->nibbles ? (size_t)(nq * lsq_pairs(scan->codes) * LSQ_PAIR + 1) : 1);
    if (!scan->queries || !scan->hits || !scan->nearest || !scan->exact || !scan->tables) return 0;
    for (int64_t q = 0; q < nq; q++) scan->queries[q].exact = scan->exact + q * size;
    return 1;
}

/* So many bytes of codes stay in a cache from search to search. */
enum { LSQ_CACHE = 8 << 20 };

/* Look-ups by nibble of all queries, and their limits; 0 without memory. `z`: the margin of the progressive scan. */
static int lsq_scan_prepare(lsq_scan *scan, double z) {
    const lsq_codes *codes = scan->codes;
    int64_t nibbles = 2 * codes->width;
    if (!scan->nibbles) {
        for (int64_t i = 0; i < scan->parts * scan->nq; i++)
            if (!lsq_nearest_init(&scan->nearest[i], scan->k, scan->limit)) return 0;
        return 1;
    }
    int64_t rows = 0;
    for (int64_t i = 0; i < codes->column.records; i++) rows += codes->column.counts[i];
    scan->streams = scan->nq == 1 && rows * codes->width > LSQ_CACHE;
    /* (Work of a group: the least and the largest look-up of each nibble, and quantized look-ups.) */
    float *low = (float *)malloc((size_t)nibbles * 2 * LSQ_GROUP * sizeof(float) + (size_t)nibbles * 16 * sizeof(uint16_t));
    if (!low) return 0;
    float *high = low + nibbles * LSQ_GROUP;
    uint16_t *work = (uint16_t *)(high + nibbles * LSQ_GROUP);
    int fine = 1;
    for (int64_t group = 0; group * LSQ_GROUP < scan->nq; group++) {
        lsq_query *queries = scan->queries + group * LSQ_GROUP;
        int nq = lsq_group_size(scan, group);
        int64_t margins[LSQ_GROUP], wide = 0;
        uint16_t ceilings[LSQ_GROUP];
        for (int i = 0; i < nq; i++) {
            lsq_nibble_tables(queries[i].values, &codes->fields, codes->width, queries[i].exact, &queries[i].bias);
            lsq_least(scan->level, queries[i].exact, nibbles, low + i * nibbles, high + i * nibbles);
            int64_t own = scan->progressive ? 0 : lsq_wide_columns(low + i * nibbles, high + i * nibbles, nibbles, codes->head);
            if (own > wide) wide = own;
        }
        for (int i = 0; i < nq; i++) {
            lsq_query *query = &queries[i];
            const float *least = low + i * nibbles, *most = high + i * nibbles;
            query->wide = wide;
            query->scale = lsq_make_scale(least, most, nibbles, query->bias, lsq_finest_step(least, most, nibbles, wide));
            query->head_base = 0;
            for (int64_t n = 0; n < 2 * codes->head; n++) query->head_base += least[n];
            query->scale.loss = lsq_write_tables(scan, group * LSQ_GROUP + i, least, query->scale.step, 0, work);
            double margin = ceil(query->scale.loss + 2 * query->scale.slack);
            margins[i] = scan->by_sums ? 0 : margin < LSQ_LARGEST ? (int64_t)margin : LSQ_LARGEST; /* also if it is no number */
            ceilings[i] = lsq_ceiling((scan->limit - query->scale.base) / query->scale.step + query->scale.slack);
        }
        if (scan->progressive) {
            lsq_moments moments[LSQ_GROUP];
            lsq_sample(scan, group, moments);
            for (int i = 0; i < nq; i++) {
                double widest = 0;
                for (int64_t n = 0; n < nibbles; n++) {
                    double range = ((double)high[i * nibbles + n] - low[i * nibbles + n]) / queries[i].scale.step;
                    if (range > widest) widest = range;
                }
                queries[i].plan = lsq_make_plan(&moments[i], nibbles, 2 * codes->head, z, widest, queries[i].scale.slack);
                double step = queries[i].scale.step * queries[i].plan.ratio;
                margins[i] = queries[i].plan.margin;
                ceilings[i] = lsq_ceiling((scan->limit - queries[i].scale.base) / step + (double)margins[i]);
                lsq_write_tables(scan, group * LSQ_GROUP + i, low + i * nibbles, step, 0.5, work);
            }
        }
        for (int i = 0; i < nq; i++) {
            int64_t q = group * LSQ_GROUP + i;
            fine = fine && (scan->by_sums || lsq_nearest_init(&scan->nearest[q], scan->k, scan->limit));
            for (int64_t part = 0; part < scan->parts; part++)
                fine = fine && lsq_hits_init(&scan->hits[part * scan->nq + q], scan->k, margins[i], ceilings[i]);
        }
    }
    free(low);
    return fine;
}

/* Rows of a block that passed: kept if they may be found. 0 without memory. */
LSQ_INLINE int lsq_keep(const lsq_codes *codes, lsq_hits *hits, uint32_t first, uint32_t mask, const uint16_t *sums, int bits) {
    for (; mask; mask &= mask - 1) {
        int lane = LSQ_LOWEST(mask);
        if (lsq_may(&codes->filter, first + (uint32_t)lane) &&
            !lsq_hit(hits, first + (uint32_t)lane, lsq_sum_of(sums, bits, lane)))
            return 0;
    }
    return 1;
}

/* A run of blocks for a group of queries: sums, and the blocks where a row passed. */
typedef struct {
    lsq_block block; /* the first one */
    uint32_t start;  /* its first row */
    int64_t blocks;
    uint16_t sums[LSQ_RUN * LSQ_BLOCK_ROWS];
    uint32_t masks[LSQ_RUN];
    uint32_t passed[LSQ_RUN]; /* those of one query after those of another */
    int64_t count[LSQ_GROUP];
} lsq_run;

/* Sum up the heads of a run (all columns, if not progressive); `rows` are left in the record. */
static void lsq_run_heads(const lsq_scan *scan, int64_t group, const lsq_hits *hits, lsq_run *run, uint32_t rows) {
    const int nq = lsq_group_size(scan, group), progressive = scan->progressive;
    uint16_t limits[LSQ_GROUP];
    const int64_t stride = nq * LSQ_PAIR, apart = nq * LSQ_BLOCK_ROWS;
    const uint8_t *tables = lsq_group_tables(scan, group);
    const lsq_query *queries = scan->queries + group * LSQ_GROUP;
    const int64_t head_size = run->block.heads * LSQ_BLOCK_ROWS, tail_size = run->block.tails * LSQ_BLOCK_ROWS;
    for (int q = 0; q < nq; q++) limits[q] = progressive ? queries[q].plan.head_limit : hits[q].limit;
    if (queries->wide) { /* upper bytes first */
        lsq_work upper = {run->block.head, queries->wide, head_size, run->blocks, NULL,
                          tables + lsq_own_pairs(scan->codes) * stride, stride, run->sums, apart, 0, 0, scan->streams, LSQ_AHEAD, limits, run->masks};
        lsq_sums(scan->level, 16, nq, &upper);
    }
    lsq_work heads = {run->block.head, run->block.heads, head_size, run->blocks, NULL, tables, stride,
                      run->sums, apart, queries->wide > 0, LSQ_WIDE_BITS, scan->streams, LSQ_AHEAD, limits, run->masks};
    lsq_sums(scan->level, progressive ? 8 : 16, nq, &heads);
    if (!progressive && run->block.tails) {
        lsq_work tails = {run->block.tail, run->block.tails, tail_size, run->blocks, NULL,
                          tables + lsq_head_pairs(scan->codes) * stride, stride, run->sums, apart, 1, 0, scan->streams, LSQ_AHEAD, limits, run->masks};
        lsq_sums(scan->level, 16, nq, &tails);
    }
    if (rows < run->blocks * LSQ_BLOCK_ROWS)
        for (int q = 0; q < nq; q++) run->masks[(run->blocks - 1) * nq + q] &= (1u << rows % LSQ_BLOCK_ROWS) - 1;
    for (int q = 0; q < nq; q++) {
        /* Without a branch, which could not be foretold. */
        uint32_t *passed = run->passed + q * run->blocks;
        int64_t n = 0;
        for (int64_t b = 0; b < run->blocks; b++) {
            passed[n] = (uint32_t)b;
            n += run->masks[b * nq + q] != 0;
        }
        run->count[q] = n;
        for (int64_t i = 0; progressive && i < n; i++)
            for (int64_t at = 0; at < run->block.tails * LSQ_BLOCK_ROWS; at += 64)
                LSQ_PREFETCH(run->block.tail + passed[i] * run->block.tails * LSQ_BLOCK_ROWS + at);
    }
}

/* Limits are sought early, but not for ever where there are none. */
enum { LSQ_EARLY = 4096 };

/* Sum up the rest where a head passed, and keep the rows that pass; 0 without memory. */
static int lsq_run_tails(const lsq_scan *scan, int64_t group, lsq_hits *hits, lsq_run *run) {
    const lsq_codes *codes = scan->codes;
    const int nq = lsq_group_size(scan, group), progressive = scan->progressive, bits = progressive ? 8 : 16;
    const int64_t stride = nq * LSQ_PAIR, apart = nq * LSQ_BLOCK_ROWS;
    const uint8_t *tables = lsq_group_tables(scan, group) + lsq_head_pairs(codes) * stride;
    for (int q = 0; q < nq; q++) {
        uint32_t near[LSQ_RUN], *passed = run->passed + q * run->blocks;
        if (progressive && run->count[q]) {
            lsq_work tails = {run->block.tail, run->block.tails, run->block.tails * LSQ_BLOCK_ROWS, run->count[q], passed,
                              tables + q * LSQ_PAIR, stride, run->sums + q * LSQ_BLOCK_ROWS, apart, 1, 0, 0, 0, &hits[q].limit, near};
            lsq_sums(scan->level, 8, 1, &tails);
        }
        int64_t n = 0, before = hits[q].count;
        for (int64_t i = 0; i < run->count[q]; i++) {
            const uint32_t b = passed[i], mask = run->masks[b * nq + q] & (progressive ? near[i] : 0xFFFFFFFFu);
            passed[n] = b;
            near[n] = mask;
            n += mask != 0;
        }
        for (int64_t i = 0; i < n; i++) {
            const uint32_t b = passed[i];
            if (!lsq_keep(codes, &hits[q], run->start + b * LSQ_BLOCK_ROWS, near[i],
                          run->sums + b * apart + q * LSQ_BLOCK_ROWS, bits))
                return 0;
        }
        if (hits[q].kth == LSQ_LARGEST && hits[q].k > LSQ_FEW && hits[q].count > before && hits[q].count >= hits[q].k &&
            hits[q].count < LSQ_EARLY && !lsq_hits_prune(&hits[q]))
            return 0;
    }
    return 1;
}

/* One record for a group of queries, by nibbles; 0 without memory. */
static int lsq_scan_nibbles(const lsq_scan *scan, int64_t record, int64_t group, lsq_hits *hits) {
    const uint32_t start = scan->codes->column.starts[record], count = scan->codes->column.counts[record];
    const int64_t blocks = (count + LSQ_BLOCK_ROWS - 1) / LSQ_BLOCK_ROWS;
    lsq_run run;
    for (int64_t first = 0; first < blocks; first += run.blocks) {
        run.block = lsq_block_at(scan->codes, record, (uint64_t)first);
        run.start = start + (uint32_t)first * LSQ_BLOCK_ROWS;
        /* Limits are as of the beginning of a run: short ones until there are some. */
        run.blocks = !scan->progressive && hits->limit == LSQ_LARGEST ? 2 : LSQ_RUN / lsq_group_size(scan, group);
        if (run.blocks > blocks - first) run.blocks = blocks - first;
        lsq_run_heads(scan, group, hits, &run, count - (uint32_t)first * LSQ_BLOCK_ROWS);
        if (!lsq_run_tails(scan, group, hits, &run)) return 0;
    }
    return 1;
}

/* One record for one query, by fields; 0 without memory. */
static int lsq_scan_fields(const lsq_scan *scan, int64_t record, const lsq_query *query, lsq_nearest *nearest) {
    const lsq_codes *codes = scan->codes;
    uint32_t start = codes->column.starts[record], count = codes->column.counts[record];
    for (uint32_t first = 0; first < count; first += LSQ_BLOCK_ROWS) {
        lsq_block block = lsq_block_at(codes, record, first / LSQ_BLOCK_ROWS);
        float distances[LSQ_BLOCK_ROWS];
        lsq_field_distances(scan->level, &block, &codes->fields, query->values, query->bias, distances);
        for (uint32_t r = 0; r < LSQ_BLOCK_ROWS && r < count - first; r++)
            if (distances[r] <= nearest->worst && lsq_may(&codes->filter, start + first + r) &&
                !lsq_offer(nearest, start + first + r, distances[r]))
                return 0;
    }
    return 1;
}

/* The records from `first` to `last` for all queries; 0 without memory. A record stays in the cache meanwhile. */
static int lsq_scan_run(const lsq_scan *scan, int64_t part, int64_t first, int64_t last) {
    for (int64_t record = first; record < last; record++) {
        if (!scan->nibbles) {
            for (int64_t q = 0; q < scan->nq; q++)
                if (!lsq_scan_fields(scan, record, &scan->queries[q], &scan->nearest[part * scan->nq + q])) return 0;
            continue;
        }
        for (int64_t group = 0; group * LSQ_GROUP < scan->nq; group++)
            if (!lsq_scan_nibbles(scan, record, group, scan->hits + part * scan->nq + group * LSQ_GROUP)) return 0;
    }
    return 1;
}

/* Evaluate the hits whose sums are above `low` and not above `high`. */
static int lsq_evaluate(const lsq_scan *scan, int64_t q, int64_t low, int64_t high, lsq_heads *heads) {
    const lsq_codes *codes = scan->codes;
    const lsq_hits *hits = &scan->hits[q];
    const lsq_query *query = &scan->queries[q];
    for (int64_t i = 0; i < hits->count; i++) {
        if (hits->sums[i] <= low || hits->sums[i] > high) continue;
        int64_t record = lsq_record(&codes->column, hits->rows[i]);
        uint32_t at = hits->rows[i] - codes->column.starts[record];
        lsq_block block = lsq_block_at(codes, record, at / LSQ_BLOCK_ROWS);
        float head = 0, distance = lsq_nibble_distance(&block, (int)(at % LSQ_BLOCK_ROWS), query->exact, query->bias, &head);
        if (scan->progressive && query->plan.possible) lsq_heads_add(heads, (head - query->head_base) / query->scale.step);
        if (!lsq_offer(&scan->nearest[q], hits->rows[i], distance)) return 0;
    }
    return 1;
}

/* Join the parts of query q: its nearest rows are in nearest[q]. 0 without memory. `sure`: see progressive.h. */
static int lsq_scan_finish(const lsq_scan *scan, int64_t q, uint8_t *sure) {
    lsq_nearest *nearest = &scan->nearest[q];
    *sure = 1;
    if (!scan->nibbles) return lsq_nearest_join(scan->nearest, scan->parts, scan->nq, q);
    lsq_hits *hits = &scan->hits[q];
    if (!lsq_hits_join(scan->hits, scan->parts, scan->nq, q)) return 0;
    const lsq_query *query = &scan->queries[q];
    int64_t limit = hits->limit;
    lsq_heads heads = {0, 0, 0};
    if (!scan->progressive && hits->count >= hits->k) {
        /* The k smallest sums first: their distances may tell that others are too far. */
        int64_t near = hits->kth < limit ? hits->kth : limit;
        if (!lsq_evaluate(scan, q, -1, near, &heads) || !lsq_nearest_prune(nearest)) return 0;
        double sum = (nearest->worst - query->scale.base) / query->scale.step + query->scale.slack;
        if (sum >= 0 && sum < (double)limit) limit = (int64_t)sum;
        if (!lsq_evaluate(scan, q, near, limit, &heads)) return 0;
    } else if (!lsq_evaluate(scan, q, -1, limit, &heads)) {
        return 0;
    }
    if (!lsq_nearest_prune(nearest)) return 0;
    lsq_hits_clear(hits); /* where many rows are equally far they take much room */
    /* `worst` is the k-th distance, or the limit where fewer rows are within it: nothing nearer may have been missed. */
    if (scan->progressive)
        *sure = hits->limit < 255 && lsq_plan_sure(&query->plan, (nearest->worst - query->scale.base) / query->scale.step, &heads);
    return 1;
}

static void lsq_scan_free(lsq_scan *scan) {
    for (int64_t i = 0; scan->hits && i < scan->parts * scan->nq; i++) lsq_hits_clear(&scan->hits[i]);
    for (int64_t i = 0; scan->nearest && i < scan->parts * scan->nq; i++) lsq_nearest_free(&scan->nearest[i]);
    free(scan->hits);
    free(scan->nearest);
    free(scan->exact);
    free(scan->tables);
    free(scan->queries);
}

/* The large ones of these functions: only scan.pyx has them compiled in, and tells search.pyx where they are. */
typedef struct {
    int (*prepare)(lsq_scan *scan, double z);
    int (*run)(const lsq_scan *scan, int64_t part, int64_t first, int64_t last);
    int (*finish)(const lsq_scan *scan, int64_t q, uint8_t *sure);
} lsq_scanner;

static inline const lsq_scanner *lsq_scanner_here(void) {
    static const lsq_scanner here = {lsq_scan_prepare, lsq_scan_run, lsq_scan_finish};
    return &here;
}

#endif

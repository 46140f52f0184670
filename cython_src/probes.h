/* Which buckets to look into: the cheapest of all tables together, by how far their values are from the query.
 *
 * The cost of a bucket is the sum of what its values cost more than the nearest ones of their fields, in whole numbers
 * (LSQ_COST for the costliest value of the query), so that sums are exact whatever their order. Only the first nearest
 * value of a field costs nothing, so each table has one bucket that does: the query's own. Equal ones are taken by table,
 * then by number.
 *
 * A table has millions of buckets at worst, so these are not looked at one by one. How many cost how much is counted
 * roughly, as coins are: a bit that costs c adds the counts of all sums without it, c further on. That tells a limit;
 * the buckets up to it are found by trying bits from the cheapest on; and of these the last few are left away.
 */
#ifndef LSQ_PROBES_H
#define LSQ_PROBES_H

#include <math.h>
#include <stdlib.h>

#include "lists.h"

enum { LSQ_COST = 1 << 20, LSQ_TICKS = 128, LSQ_BINS = 1024 };

/* A table: `fields` fields from `field` on, of two values each, or one field of any. */
typedef struct { int64_t field, fields; int bits; } lsq_table;

typedef struct { uint32_t cost, bucket; uint16_t table, weight; } lsq_probe;

typedef struct {
    const lsq_table *tables;
    int64_t count;              /* of tables */
    const lsq_fields *fields;
    uint32_t *costs;            /* one a value of a field, as look-ups lie */
    uint32_t *steps;            /* of tables of bits: what the other value of each bit costs, rising; LSQ_TABLE_BITS a table */
    uint32_t *masks;            /* and which bit that is */
    uint32_t *own;              /* the bucket of the nearest values of each table */
    lsq_probe *probes;          /* found, by table */
    int64_t found, room;
} lsq_probes;

LSQ_INLINE int lsq_of_bits(const lsq_probes *p, int64_t t) { return p->fields->levels[p->tables[t].field] == 2; }

/* The number of all buckets there are. */
static int64_t lsq_all_buckets(const lsq_probes *p) {
    int64_t all = 0;
    for (int64_t t = 0; t < p->count; t++)
        all += lsq_of_bits(p, t) ? (int64_t)1 << p->tables[t].fields : p->fields->levels[p->tables[t].field];
    return all;
}

/* What every value costs, and each table's bits by rising cost. */
static void lsq_probes_begin(lsq_probes *p, const float *values) {
    int64_t first = p->tables[0].field, last = p->tables[p->count - 1].field + p->tables[p->count - 1].fields;
    double largest = 0;
    for (int64_t f = first; f < last; f++) {
        const float *v = values + p->fields->starts[f];
        float least = v[0], most = v[0];
        for (int64_t l = 1; l < p->fields->levels[f]; l++) {
            least = v[l] < least ? v[l] : least;
            most = v[l] > most ? v[l] : most;
        }
        double width = (double)most - (double)least;
        largest = width > largest ? width : largest;
    }
    double scale = largest > 0 ? (double)LSQ_COST / largest : 0;
    for (int64_t f = first; f < last; f++) {
        const float *v = values + p->fields->starts[f];
        uint32_t *c = p->costs + p->fields->starts[f];
        int64_t own = 0;
        for (int64_t l = 1; l < p->fields->levels[f]; l++) own = v[l] < v[own] ? l : own;
        for (int64_t l = 0; l < p->fields->levels[f]; l++) {
            uint32_t cost = (uint32_t)(((double)v[l] - (double)v[own]) * scale + 0.5);
            c[l] = l == own ? 0 : cost ? cost : 1;
        }
    }
    for (int64_t t = 0; t < p->count; t++) {
        const lsq_table *table = p->tables + t;
        uint32_t *steps = p->steps + t * LSQ_TABLE_BITS, *masks = p->masks + t * LSQ_TABLE_BITS, own = 0;
        if (!lsq_of_bits(p, t)) continue;
        for (int64_t i = 0; i < table->fields; i++) {
            const uint32_t *c = p->costs + p->fields->starts[table->field + i];
            uint32_t step = c[0] > c[1] ? c[0] : c[1];
            own |= (uint32_t)(c[1] < c[0]) << i;
            int64_t at = i;
            for (; at > 0 && steps[at - 1] > step; at--) {
                steps[at] = steps[at - 1];
                masks[at] = masks[at - 1];
            }
            steps[at] = step;
            masks[at] = 1u << i;
        }
        p->own[t] = own;
    }
}

/* How many buckets cost about s ticks, for each s below LSQ_TICKS. */
LSQ_INLINE void lsq_count_costs_body(const lsq_probes *p, uint32_t tick, uint64_t *totals) {
    for (int s = 0; s < LSQ_TICKS; s++) totals[s] = 0;
    for (int64_t t = 0; t < p->count; t++) {
        if (!lsq_of_bits(p, t)) {
            const uint32_t *c = p->costs + p->fields->starts[p->tables[t].field];
            for (int64_t l = 0; l < p->fields->levels[p->tables[t].field]; l++) {
                uint32_t s = (c[l] + tick / 2) / tick;
                if (s < LSQ_TICKS) totals[s]++;
            }
            continue;
        }
        uint32_t sums[2][LSQ_TICKS] = {{1}};
        const uint32_t *steps = p->steps + t * LSQ_TABLE_BITS;
        int at = 0;
        for (int64_t i = 0; i < p->tables[t].fields; i++) {
            uint32_t s = (steps[i] + tick / 2) / tick;
            if (s >= LSQ_TICKS) break;
            const uint32_t *without = sums[at];
            uint32_t *with = sums[!at];
            for (uint32_t j = 0; j < s; j++) with[j] = without[j];
            for (uint32_t j = s; j < LSQ_TICKS; j++) with[j] = without[j] + without[j - s];
            at = !at;
        }
        for (int s = 0; s < LSQ_TICKS; s++) totals[s] += sums[at][s];
    }
}
LSQ_BODIES(lsq_count_costs, (const lsq_probes *p, uint32_t tick, uint64_t *totals), (p, tick, totals))

/* A cost that about `wanted` buckets do not exceed. */
static uint64_t lsq_limit(int level, const lsq_probes *p, int64_t wanted) {
    uint64_t totals[LSQ_TICKS], sum = 0;
    if (wanted <= p->count) return 0; /* the own buckets cost nothing */
    /* A first guess of how fine to count: so many of the cheapest bits of each table give about as many buckets. */
    int64_t each = 1;
    while (p->count << each < wanted / 2 && each < LSQ_TABLE_BITS) each++;
    for (int64_t t = 0; t < p->count; t++)
        for (int64_t i = 0; lsq_of_bits(p, t) && i < each && i < p->tables[t].fields; i++) sum += p->steps[t * LSQ_TABLE_BITS + i];
    uint64_t tick = sum / (uint64_t)(p->count * LSQ_TICKS / 2) + 1;
    if (!lsq_of_bits(p, 0)) tick = LSQ_COST / LSQ_TICKS;
    for (int tries = 0; tries < 40; tries++) {
        lsq_count_costs(level, p, (uint32_t)tick, totals);
        int64_t s = 0, below = 0;
        for (; s < LSQ_TICKS; s++) {
            below += (int64_t)totals[s];
            if (below >= wanted) break;
        }
        if (s == LSQ_TICKS) tick *= 2;
        else if (s >= LSQ_TICKS / 4 || tick == 1) return (uint64_t)(s + 1) * tick;
        else tick = tick * (uint64_t)(s + 1) / (LSQ_TICKS / 2) + 1 < tick ? tick * (uint64_t)(s + 1) / (LSQ_TICKS / 2) + 1 : tick - 1;
    }
    return (uint64_t)LSQ_TICKS * tick;
}

LSQ_INLINE int lsq_probe_add(lsq_probes *p, int64_t t, uint32_t bucket, uint64_t cost) {
    if (p->found == p->room) {
        int64_t room = 2 * p->room + 1024;
        lsq_probe *more = (lsq_probe *)realloc(p->probes, (size_t)room * sizeof(lsq_probe));
        if (!more) return 0;
        p->probes = more;
        p->room = room;
    }
    lsq_probe probe = {(uint32_t)cost, bucket, (uint16_t)t, 0};
    p->probes[p->found++] = probe;
    return 1;
}

/* All buckets of a table of bits that change `bucket` in bits from the i-th cheapest on and cost no more than `limit`. */
static int lsq_probe_bits(lsq_probes *p, int64_t t, int64_t i, uint32_t bucket, uint64_t cost, uint64_t limit) {
    const uint32_t *steps = p->steps + t * LSQ_TABLE_BITS, *masks = p->masks + t * LSQ_TABLE_BITS;
    if (!lsq_probe_add(p, t, bucket, cost)) return 0;
    for (; i < p->tables[t].fields && cost + steps[i] <= limit; i++)
        if (!lsq_probe_bits(p, t, i + 1, bucket ^ masks[i], cost + steps[i], limit)) return 0;
    return 1;
}

static int lsq_probe_all(lsq_probes *p, uint64_t limit) {
    p->found = 0;
    for (int64_t t = 0; t < p->count; t++) {
        if (lsq_of_bits(p, t)) {
            if (!lsq_probe_bits(p, t, 0, p->own[t], 0, limit)) return 0;
            continue;
        }
        const uint32_t *c = p->costs + p->fields->starts[p->tables[t].field];
        for (int64_t l = 0; l < p->fields->levels[p->tables[t].field]; l++)
            if (c[l] <= limit && !lsq_probe_add(p, t, (uint32_t)l, c[l])) return 0;
    }
    return 1;
}

static int lsq_probe_order(const void *left, const void *right) {
    const lsq_probe *a = (const lsq_probe *)left, *b = (const lsq_probe *)right;
    if (a->cost != b->cost) return a->cost < b->cost ? -1 : 1;
    if (a->table != b->table) return a->table < b->table ? -1 : 1;
    return (a->bucket > b->bucket) - (a->bucket < b->bucket);
}

/* Of what was found, all with a cost up to `limit`, keep the `wanted` cheapest, in the order they are in. */
static int lsq_probe_cut(lsq_probes *p, int64_t wanted, uint64_t limit) {
    int64_t bins[LSQ_BINS] = {0}, bin = 0, before = 0, n = 0, kept = 0;
    for (int64_t i = 0; i < p->found; i++) bins[(uint64_t)p->probes[i].cost * LSQ_BINS / (limit + 1)]++;
    while (before + bins[bin] < wanted) before += bins[bin++];
    lsq_probe *last = (lsq_probe *)malloc((size_t)bins[bin] * sizeof(lsq_probe));
    if (!last) return 0;
    for (int64_t i = 0; i < p->found; i++)
        if ((int64_t)((uint64_t)p->probes[i].cost * LSQ_BINS / (limit + 1)) == bin) last[n++] = p->probes[i];
    qsort(last, (size_t)n, sizeof(lsq_probe), lsq_probe_order);
    lsq_probe end = last[wanted - before - 1];
    free(last);
    for (int64_t i = 0; i < p->found; i++) {
        lsq_probe probe = p->probes[i];
        p->probes[kept] = probe;
        kept += probe.cost < end.cost || (probe.cost == end.cost && lsq_probe_order(&probe, &end) <= 0);
    }
    p->found = kept;
    return 1;
}

/* The `wanted` cheapest probes (fewer only where there are no more buckets), table after table; 0 without memory. */
static int lsq_probes_find(int level, lsq_probes *p, int64_t wanted) {
    int64_t all = lsq_all_buckets(p);
    wanted = wanted < all ? wanted : all;
    for (uint64_t limit = lsq_limit(level, p, wanted);; limit += limit / 8 + 1) {
        if (!lsq_probe_all(p, limit)) return 0;
        if (p->found >= wanted) return p->found == wanted || lsq_probe_cut(p, wanted, limit);
    }
}

/* What a hit counts: from `most`, for a bucket that costs nothing, to half of that for the costliest one. */
static void lsq_probes_weigh(lsq_probes *p, uint32_t most) {
    uint64_t limit = 0;
    for (int64_t i = 0; i < p->found; i++) limit = p->probes[i].cost > limit ? p->probes[i].cost : limit;
    for (int64_t i = 0; i < p->found; i++) {
        uint64_t less = limit ? (uint64_t)(most / 2) * p->probes[i].cost / limit : 0;
        p->probes[i].weight = (uint16_t)(most - less);
    }
}

#endif

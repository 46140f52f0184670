/* Scores: how many tables return a row, each hit with the weight of its probe; and the rows of the best scores.
 *
 * Block after block, so that the scores of a block, a byte (or two, where there are more than 255 tables) a row, stay in
 * the cache: set to 0, added to through the posting lists, and what is not below the least score that can still count is
 * taken. That rises by counting: never is anything sorted.
 */
#ifndef LSQ_SCORES_H
#define LSQ_SCORES_H

#include "probes.h"

/* Where posting lists lie: an address for each block and table. */
typedef struct {
    const uint32_t *firsts, *spans, *counts; /* of blocks: first row, rows up to the next, rows in the lists */
    const uint64_t *addresses;
    int64_t blocks, tables;
    const lsq_table *table;
    const uint8_t *there;                    /* a byte for each chunk of rows that is in the index, or 0 for all */
    int64_t chunks, chunk_rows;
    lsq_filter filter;
} lsq_lists;

/* Rows of the best scores, not yet in order: all with a score of at least `least`. */
typedef struct {
    uint32_t *rows;
    uint16_t *scores;
    int64_t count, room, wanted;
    uint32_t least, most; /* `most`: the largest score there can be */
    uint32_t *totals;     /* most + 1 */
} lsq_best;

/* One query's work. */
typedef struct {
    lsq_probes probes;
    lsq_best best;
    uint32_t *from, *to;  /* of each probe's list in a block */
    int64_t ranges;       /* room for so many */
    uint8_t *scores;      /* of a block */
    int wide;             /* whether a score has two bytes */
    int counting;         /* whether to count the rows that any list returned */
    int64_t postings, touched;
} lsq_scorer;

/* ---- adding up --------------------------------------------------------------------------------------------------- */

LSQ_INLINE const uint8_t *lsq_list_at(const lsq_lists *lists, int64_t block, int64_t table) {
    return (const uint8_t *)(uintptr_t)lists->addresses[block * lists->tables + table];
}

LSQ_INLINE void lsq_prefetch_line(const void *p) {
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(p);
#else
    (void)p;
#endif
}

/* Where the list of every probe lies in a block. Each step asks for what the next one reads, for all probes, so that
 * hundreds of cache misses are on their way together. How many rows there are. */
static int64_t lsq_find_lists(const lsq_lists *lists, int64_t block, lsq_scorer *scorer) {
    const lsq_probe *probes = scorer->probes.probes;
    int64_t n = scorer->probes.found, postings = 0;
    uint32_t count = lists->counts[block], *from = scorer->from, *to = scorer->to;
    for (int64_t i = 0; i < n; i++) {
        int bits = lists->table[probes[i].table].bits;
        lsq_prefetch_line(lsq_list_at(lists, block, probes[i].table) + 2 * lsq_bin(bits, probes[i].bucket));
    }
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *list = lsq_list_at(lists, block, probes[i].table);
        int bits = lists->table[probes[i].table].bits;
        lsq_bin_range(list, bits, probes[i].bucket, from + i, to + i);
        if (bits > LSQ_DIRECTORY_BITS) lsq_prefetch_line(lsq_list_rows(list, bits) + 2 * (uint64_t)count + (from[i] + to[i]) / 2);
    }
    for (int64_t i = 0; i < n; i++) {
        int bits = lists->table[probes[i].table].bits;
        const uint8_t *rows = lsq_list_rows(lsq_list_at(lists, block, probes[i].table), bits);
        if (bits > LSQ_DIRECTORY_BITS) lsq_narrow(rows + 2 * (uint64_t)count, bits, probes[i].bucket, from + i, to + i);
        lsq_prefetch_line(rows + 2 * (uint64_t)from[i]);
        postings += to[i] - from[i];
    }
    return postings;
}

LSQ_INLINE void lsq_add_list(const uint8_t *rows, uint32_t n, uint32_t weight, uint8_t *scores, int wide) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = lsq_load16(rows + 2 * (uint64_t)i);
        if (wide) ((uint16_t *)(void *)scores)[row] = (uint16_t)(((uint16_t *)(void *)scores)[row] + weight);
        else scores[row] = (uint8_t)(scores[row] + weight);
    }
}

/* Where the rows of a probe's list begin. */
LSQ_INLINE const uint8_t *lsq_probe_rows(const lsq_lists *lists, int64_t block, const lsq_scorer *scorer, int64_t i) {
    const lsq_probe *probe = scorer->probes.probes + i;
    const uint8_t *list = lsq_list_at(lists, block, probe->table);
    return lsq_list_rows(list, lists->table[probe->table].bits) + 2 * (uint64_t)scorer->from[i];
}

/* The scores of a block. */
static void lsq_accumulate(const lsq_lists *lists, int64_t block, lsq_scorer *scorer) {
    const lsq_probes *p = &scorer->probes;
    memset(scorer->scores, 0, (size_t)lists->spans[block] << scorer->wide);
    scorer->postings += lsq_find_lists(lists, block, scorer);
    for (int64_t i = 0; i < p->found; i++) {
        const uint8_t *rows = lsq_probe_rows(lists, block, scorer, i);
        /* Of each list the first line is on its way; the rest of the next one is asked for now. All of all lists at once
         * would only push each other out. */
        if (i + 1 < p->found) {
            const uint8_t *next = lsq_probe_rows(lists, block, scorer, i + 1);
            uint32_t size = 2 * (scorer->to[i + 1] - scorer->from[i + 1]);
            for (uint32_t at = 64; at < size && at <= 1024; at += 64) lsq_prefetch_line(next + at);
        }
        if (scorer->wide) lsq_add_list(rows, scorer->to[i] - scorer->from[i], p->probes[i].weight, scorer->scores, 1);
        else lsq_add_list(rows, scorer->to[i] - scorer->from[i], p->probes[i].weight, scorer->scores, 0);
    }
}

/* ---- rows that may not be found ---------------------------------------------------------------------------------- */

/* Set the scores of rows to 0 whose bit is `drop`; `n` is a multiple of 8 but for the last block. */
LSQ_INLINE void lsq_drop_body(const uint8_t *bits, int drop, int64_t n, uint8_t *scores, int wide) {
    for (int64_t i = 0; i < n; i++) {
        int keep = (bits[i >> 3] >> (i & 7) & 1) != drop;
        if (wide) ((uint16_t *)(void *)scores)[i] = (uint16_t)(((uint16_t *)(void *)scores)[i] * keep);
        else scores[i] = (uint8_t)(scores[i] * keep);
    }
}
LSQ_BODIES(lsq_drop, (const uint8_t *bits, int drop, int64_t n, uint8_t *scores, int wide), (bits, drop, n, scores, wide))

/* Deleted rows, rows of chunks that are gone, and rows that the filter does not let through have no score. */
static void lsq_drop_rows(int level, const lsq_lists *lists, int64_t block, lsq_scorer *scorer) {
    const lsq_filter *filter = &lists->filter;
    int64_t first = lists->firsts[block], n = lists->spans[block], segment = first / filter->segment_rows;
    if (segment < filter->segments && filter->deleted[segment])
        lsq_drop(level, filter->deleted[segment] + first % filter->segment_rows / 8, 1, n, scorer->scores, scorer->wide);
    if (filter->allowed) {
        int64_t known = filter->allowed_rows - first;
        known = known < 0 ? 0 : known < n ? known : n;
        lsq_drop(level, filter->allowed + first / 8, 0, known, scorer->scores, scorer->wide);
        memset(scorer->scores + (known << scorer->wide), 0, (size_t)(n - known) << scorer->wide);
    }
    for (int64_t at = 0; lists->there && at < n; at += lists->chunk_rows) {
        int64_t chunk = (first + at) / lists->chunk_rows, rows = n - at < lists->chunk_rows ? n - at : lists->chunk_rows;
        if (chunk >= lists->chunks || !lists->there[chunk])
            memset(scorer->scores + (at << scorer->wide), 0, (size_t)rows << scorer->wide);
    }
}

/* ---- the best ----------------------------------------------------------------------------------------------------- */

/* How many scores are not below `least`. Sums of a byte a lane, for as long as these cannot overflow. */
LSQ_INLINE void lsq_count_scores_body(const uint8_t *scores, int64_t n, uint32_t least, int wide, int64_t *count) {
    int64_t i = 0, total = 0;
    if (wide) {
        for (; i < n; i++) total += ((const uint16_t *)(const void *)scores)[i] >= least;
    } else if (least <= 255) {
        uint8_t lower = (uint8_t)least;
        while (i + 64 <= n) {
            uint8_t lanes[64] = {0};
            for (int step = 0; step < 255 && i + 64 <= n; step++, i += 64)
                for (int j = 0; j < 64; j++) lanes[j] = (uint8_t)(lanes[j] + (scores[i + j] >= lower));
            for (int j = 0; j < 64; j++) total += lanes[j];
        }
        for (; i < n; i++) total += scores[i] >= lower;
    }
    *count = total;
}
LSQ_BODIES(lsq_count_scores, (const uint8_t *scores, int64_t n, uint32_t least, int wide, int64_t *count),
           (scores, n, least, wide, count))

/* The lowest bits of eight bytes become one byte: times this, the highest one of the product. (A little-endian word.) */
#define LSQ_GATHER_FLAGS 0x0102040810204080u

LSQ_INLINE int lsq_lowest_bit(uint64_t word) {
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctzll(word);
#else
    int bit = 0;
    while (!(word >> bit & 1)) bit++;
    return bit;
#endif
}

/* The rows (from `first` on) whose scores are not below `least`. Few are: 256 are compared at once, then 64, and only those
 * of a set flag looked at. */
LSQ_INLINE void lsq_take_scores_body(const uint8_t *scores, int64_t n, uint32_t least, int wide, uint32_t first, lsq_best *best) {
    int64_t i = 0, at = best->count;
    const uint8_t lower = (uint8_t)least;
    for (; !wide && i + 256 <= n; i += 256) {
        uint8_t any[32] = {0};
        for (int part = 0; part < 256; part += 32)
            for (int j = 0; j < 32; j++) any[j] |= scores[i + part + j] >= lower;
        if (!(lsq_load64(any) | lsq_load64(any + 8) | lsq_load64(any + 16) | lsq_load64(any + 24))) continue;
        for (int64_t part = i; part < i + 256; part += 64) {
            uint8_t flags[64];
            uint64_t set = 0;
            for (int j = 0; j < 64; j++) flags[j] = scores[part + j] >= lower;
            for (int word = 0; word < 64; word += 8) set |= (lsq_load64(flags + word) * LSQ_GATHER_FLAGS >> 56) << word;
            for (; set; set &= set - 1) {
                int64_t j = part + lsq_lowest_bit(set);
                best->rows[at] = first + (uint32_t)j;
                best->scores[at++] = scores[j];
            }
        }
    }
    for (; i < n; i++) {
        uint32_t score = wide ? ((const uint16_t *)(const void *)scores)[i] : scores[i];
        best->rows[at] = first + (uint32_t)i;
        best->scores[at] = (uint16_t)score;
        at += score >= least;
    }
    best->count = at;
}
LSQ_BODIES(lsq_take_scores, (const uint8_t *scores, int64_t n, uint32_t least, int wide, uint32_t first, lsq_best *best),
           (scores, n, least, wide, first, best))

/* Raise the least score as far as enough rows stay, after those from `before` on came. */
static void lsq_best_raise(lsq_best *best, int64_t before) {
    for (int64_t i = before; i < best->count; i++) best->totals[best->scores[i]]++;
    int64_t above = 0;
    uint32_t score = best->most;
    for (; score > best->least; score--) {
        above += best->totals[score];
        if (above >= best->wanted) break;
    }
    best->least = score;
}

/* Let the rows below the least score go. */
static void lsq_best_drop(lsq_best *best) {
    int64_t kept = 0;
    for (int64_t i = 0; i < best->count; i++) {
        best->rows[kept] = best->rows[i];
        best->scores[kept] = best->scores[i];
        kept += best->scores[i] >= best->least;
    }
    best->count = kept;
}

static int lsq_best_room(lsq_best *best, int64_t count) {
    if (count <= best->room) return 1;
    int64_t room = 2 * count + 64;
    uint32_t *rows = (uint32_t *)realloc(best->rows, (size_t)room * sizeof(uint32_t));
    if (!rows) return 0;
    best->rows = rows;
    uint16_t *scores = (uint16_t *)realloc(best->scores, (size_t)room * sizeof(uint16_t));
    if (!scores) return 0;
    best->scores = scores;
    best->room = room;
    return 1;
}

/* Put what one query found behind what others did. */
static int lsq_best_append(lsq_best *all, const lsq_best *own) {
    if (!own->count) return 1;
    if (!lsq_best_room(all, all->count + own->count)) return 0;
    memcpy(all->rows + all->count, own->rows, (size_t)own->count * sizeof(uint32_t));
    memcpy(all->scores + all->count, own->scores, (size_t)own->count * sizeof(uint16_t));
    all->count += own->count;
    return 1;
}

/* Take the best of a block. */
static int lsq_best_take(int level, const lsq_scorer *scorer, lsq_best *best, uint32_t first, int64_t n) {
    int64_t count;
    lsq_count_scores(level, scorer->scores, n, best->least, scorer->wide, &count);
    if (count > 2 * best->wanted) {
        /* More than enough in this block alone: the largest score that still leaves enough. */
        uint32_t low = best->least, high = best->most;
        while (low < high) {
            uint32_t middle = low + (high - low + 1) / 2;
            int64_t here;
            lsq_count_scores(level, scorer->scores, n, middle, scorer->wide, &here);
            if (here < best->wanted) high = middle - 1;
            else { low = middle; count = here; }
        }
        best->least = low;
    }
    /* (Taking writes one place past the last.) */
    if (!lsq_best_room(best, best->count + count + 1)) return 0;
    int64_t before = best->count;
    lsq_take_scores(level, scorer->scores, n, best->least, scorer->wide, first, best);
    lsq_best_raise(best, before);
    if (best->count > 4 * best->wanted) lsq_best_drop(best);
    return 1;
}

/* Room for the work of one query; 0 without memory. */
static int lsq_scorer_begin(lsq_scorer *scorer, const lsq_lists *lists, const lsq_fields *fields, int64_t wanted) {
    int64_t tables = lists->tables, values = fields->starts[fields->count - 1] + fields->levels[fields->count - 1];
    lsq_probes *p = &scorer->probes;
    memset(scorer, 0, sizeof(*scorer));
    p->tables = lists->table;
    p->count = tables;
    p->fields = fields;
    p->costs = (uint32_t *)malloc((size_t)values * sizeof(uint32_t));
    p->steps = (uint32_t *)malloc((size_t)tables * LSQ_TABLE_BITS * sizeof(uint32_t));
    p->masks = (uint32_t *)malloc((size_t)tables * LSQ_TABLE_BITS * sizeof(uint32_t));
    p->own = (uint32_t *)malloc((size_t)tables * sizeof(uint32_t));
    scorer->wide = tables > 255;
    scorer->scores = (uint8_t *)malloc((size_t)LSQ_SPAN << scorer->wide);
    scorer->best.totals = (uint32_t *)malloc((size_t)(tables > 255 ? tables + 1 : 256) * sizeof(uint32_t));
    scorer->best.wanted = wanted;
    return p->costs && p->steps && p->masks && p->own && scorer->scores && scorer->best.totals;
}

static void lsq_scorer_free(lsq_scorer *scorer) {
    free(scorer->probes.costs);
    free(scorer->probes.steps);
    free(scorer->probes.masks);
    free(scorer->probes.own);
    free(scorer->probes.probes);
    free(scorer->from);
    free(scorer->scores);
    free(scorer->best.rows);
    free(scorer->best.scores);
    free(scorer->best.totals);
}

/* ---- one query ----------------------------------------------------------------------------------------------------- */

/* The rows of the best scores of all blocks, after `wanted` probes of the cheapest; 0 without memory. */
static int lsq_score(int level, const lsq_lists *lists, lsq_scorer *scorer, int64_t probes, uint32_t weight) {
    lsq_best *best = &scorer->best;
    if (!lsq_probes_find(level, &scorer->probes, probes)) return 0;
    lsq_probes_weigh(&scorer->probes, weight);
    if (scorer->probes.found > scorer->ranges) {
        free(scorer->from);
        scorer->from = (uint32_t *)malloc((size_t)scorer->probes.found * 2 * sizeof(uint32_t));
        scorer->ranges = scorer->from ? scorer->probes.found : 0;
        if (!scorer->from) return 0;
        scorer->to = scorer->from + scorer->ranges;
    }
    best->count = 0;
    best->least = 1;
    best->most = weight * (uint32_t)lists->tables;
    memset(best->totals, 0, (best->most + 1) * sizeof(*best->totals));
    scorer->postings = scorer->touched = 0;
    for (int64_t block = 0; block < lists->blocks; block++) {
        lsq_accumulate(lists, block, scorer);
        if (scorer->counting) {
            int64_t touched;
            lsq_count_scores(level, scorer->scores, lists->spans[block], 1, scorer->wide, &touched);
            scorer->touched += touched;
        }
        lsq_drop_rows(level, lists, block, scorer);
        if (!lsq_best_take(level, scorer, best, lists->firsts[block], lists->spans[block])) return 0;
    }
    lsq_best_drop(best);
    return 1;
}

/* As the paper has it: the query's own buckets, and, while fewer than `k` rows came, one more at a time, the cheapest
 * next. How many that takes is found by doubling and halving, for their number only grows. At most `most` probes. */
static int lsq_score_expanding(int level, const lsq_lists *lists, lsq_scorer *scorer, int64_t k, int64_t probes, int64_t most,
                               uint32_t weight) {
    int64_t enough = probes, few = 0;
    for (;; few = enough, enough = 2 * enough < most ? 2 * enough : most) {
        if (!lsq_score(level, lists, scorer, enough, weight)) return 0;
        if (scorer->best.count >= k || scorer->probes.found < enough || enough >= most) break;
    }
    if (few == 0 || scorer->best.count < k) return 1;
    while (enough - few > 1) {
        int64_t middle = few + (enough - few) / 2;
        if (!lsq_score(level, lists, scorer, middle, weight)) return 0;
        if (scorer->best.count >= k) enough = middle;
        else few = middle;
    }
    return lsq_score(level, lists, scorer, enough, weight);
}

#endif

/* A whole search among codes: tables, scan, exact distances of the best, and the answers.

       begin ─▶ scan ─▶ collect ─▶ compare ─▶ rank ─▶ done
                  ▲                             │
                  └── queries that need more ◀──┘

   What does not depend on the queries is prepared once (lsq_prepared). The steps scan and compare may be done in several
   parts at the same time; everything in between is one step. A query needs another scan where the head of codes was not
   enough to be sure (progressive.h), or where exact distances show that neighbours are likely to be missing (misses.h): then
   with the next larger number of candidates.

   Where vectors are kept, candidates are the rows of the smallest sums: no distance of their codes is computed. Of rows with
   equal sums at the end of the list those of the smallest ids are taken, so that candidates do not depend on where rows are. */
#ifndef LSQ_SEARCH_H
#define LSQ_SEARCH_H

#include "answer.h"
#include "compare.h"
#include "misses.h"
#include "rerank.h"
#include "scan.h"
#include "tables.h"

typedef struct {
    lsq_codes codes;
    int nibbles;
    const uint32_t *rows;      /* of codes that were copied together: their row numbers; NULL where codes are in place */
    const lsq_linear *linear;  /* makes the tables; NULL where they are given */
    int64_t lookups, dim;      /* of a query */
    const lsq_vectors *kept;   /* what candidates are compared with; NULL: codes alone decide */
    const uint8_t *verified;   /* for each record of kept vectors */
    int metric;
    lsq_ids ids;
    int64_t k, total;          /* rows wanted, and rows that could be found */
    float limit, code_limit;   /* farther rows are not wanted, by their better distance and by their code */
    int64_t depths;            /* numbers of candidates, ascending, and margins of the progressive scan, NAN for none */
    const int64_t *wides;
    const double *margins;
    double missed;             /* more candidates are compared while more neighbours than this are expected to be missing */
    int64_t at_once;           /* candidates of one scan of several queries, about */
} lsq_prepared;

/* Queries that are left to the caller: their numbers are too small to be multiplied; vectors of zeros, which share a code,
 * are among their candidates (under cosine). */
enum { LSQ_SHORT = 1, LSQ_CROWDED = 2 };

typedef struct {
    const lsq_prepared *all;
    int level;
    const lsq_scanner *scanner;
    lsq_rerank rerank; /* compares rows exactly */
    int64_t nq, parts;
    const float *queries, *values, *bias;
    float *own, *numbers; /* tables that were made here; the targets' numbers */
    lsq_target *targets;
    lsq_answer *answers;
    uint8_t *flags;
    /* Queries of this round, those that are not sure, and those of the next round; `at`, `some`: what is being scanned. */
    int64_t *lists, *todo, *again, *deeper;
    int64_t left, unsure, shallow, at, some, depth;
    int whole; /* all columns at once */
    lsq_scan scan;
    /* The candidates of the queries being scanned: those of query i from firsts[i] on. */
    int64_t *firsts, room;
    uint32_t *rows;
    float *estimates, *exact;
    uint32_t *zeros; /* rows of zeros that were met */
    int64_t zero_count, zero_room;
    int64_t scans, reranked; /* counted for explain() */
} lsq_search;

/* ---- the next scan --------------------------------------------------------------------------------------------------- */

static void lsq_swap_lists(int64_t **a, int64_t **b) {
    int64_t *c = *a;
    *a = *b;
    *b = c;
}

/* Prepare the scan of the next queries; `more`: whether there are any. */
static int lsq_search_next(lsq_search *s, int *more) {
    const lsq_prepared *all = s->all;
    lsq_scan_free(&s->scan);
    memset(&s->scan, 0, sizeof(s->scan));
    s->at += s->some;
    s->some = 0;
    if (s->at == s->left) {
        s->whole = s->unsure > 0;
        s->at = 0;
        if (s->unsure) {
            lsq_swap_lists(&s->todo, &s->again);
            s->left = s->unsure, s->unsure = 0;
        } else {
            lsq_swap_lists(&s->todo, &s->deeper);
            s->left = s->shallow, s->shallow = 0;
            s->depth++;
        }
    }
    *more = s->left > 0;
    if (!s->left) return LSQ_FINE;
    const int64_t wide = all->wides[s->depth], step = all->at_once / wide > 1 ? all->at_once / wide : 1;
    s->some = s->left - s->at < step ? s->left - s->at : step;
    s->scan.codes = &all->codes;
    s->scan.level = s->level;
    s->scan.nibbles = all->nibbles;
    s->scan.progressive = all->nibbles && !s->whole && !isnan(all->margins[s->depth]);
    s->scan.by_sums = all->kept && all->nibbles && !s->scan.progressive;
    s->scan.k = wide;
    s->scan.limit = all->code_limit;
    if (!lsq_scan_make(&s->scan, s->some, s->parts)) return LSQ_NO_MEMORY;
    for (int64_t i = 0; i < s->some; i++) {
        s->scan.queries[i].values = s->values + s->todo[s->at + i] * all->lookups;
        s->scan.queries[i].bias = s->bias[s->todo[s->at + i]];
    }
    if (!s->whole) s->scans += s->some;
    return s->scanner->prepare(&s->scan, all->margins[s->depth]) ? LSQ_FINE : LSQ_NO_MEMORY;
}

/* Tables and targets of all queries; those that are too short are left out, unless they have been made longer. */
static int lsq_search_begin(lsq_search *s, int lifted) {
    const lsq_prepared *all = s->all;
    const int64_t nq = s->nq, dim = all->dim, padded = lsq_padded(dim);
    int more;
    s->flags = (uint8_t *)calloc((size_t)nq, 1);
    s->answers = (lsq_answer *)calloc((size_t)nq, sizeof(lsq_answer));
    s->lists = (int64_t *)malloc((size_t)(4 * nq + 1) * sizeof(int64_t));
    if (!s->flags || !s->answers || !s->lists) return LSQ_NO_MEMORY;
    s->todo = s->lists, s->again = s->todo + nq, s->deeper = s->again + nq, s->firsts = s->deeper + nq;
    if (all->linear) {
        int64_t sizes = nq * (all->lookups + 1);
        s->own = (float *)malloc((size_t)(sizes + lsq_tables_work(all->linear, nq)) * sizeof(float));
        if (!s->own) return LSQ_NO_MEMORY;
        lsq_tables_of(s->level, all->linear, s->queries, nq, s->own, s->own + nq * all->lookups, s->own + sizes);
        s->values = s->own, s->bias = s->own + nq * all->lookups;
    }
    if (all->kept) {
        s->numbers = (float *)malloc((size_t)(nq * padded) * sizeof(float));
        s->targets = (lsq_target *)malloc((size_t)nq * sizeof(lsq_target));
        if (!s->numbers || !s->targets) return LSQ_NO_MEMORY;
    }
    for (int64_t q = 0; q < nq; q++) {
        const float *query = s->queries + q * dim;
        if (all->metric == LSQ_COSINE && !lifted) {
            double square = 0;
            for (int64_t i = 0; i < dim; i++) square += (double)query[i] * query[i];
            if (square < LSQ_SMALL) s->flags[q] = LSQ_SHORT;
        }
        if (all->kept) s->targets[q] = lsq_target_of(all->metric, query, dim, s->numbers + q * padded);
        if (!s->flags[q]) s->deeper[s->shallow++] = q;
    }
    s->depth = -1;
    return lsq_search_next(s, &more);
}

/* One part of the records. */
static int lsq_search_scan(const lsq_search *s, int64_t part) {
    const int64_t records = s->all->codes.column.records;
    int fine = s->scanner->run(&s->scan, part, part * records / s->parts, (part + 1) * records / s->parts);
    return fine ? LSQ_FINE : LSQ_NO_MEMORY;
}

/* ---- candidates ------------------------------------------------------------------------------------------------------ */

LSQ_INLINE uint32_t lsq_search_row(const lsq_search *s, uint32_t row) { return s->all->rows ? s->all->rows[row] : row; }

/* Sort by sums: two passes over their bytes, each of which keeps the order of equal ones. */
static void lsq_sort_sums(uint32_t *rows, uint16_t *sums, uint32_t *other_rows, uint16_t *other_sums, int64_t count) {
    for (int shift = 0; shift < 16; shift += 8) {
        int64_t places[257] = {0};
        for (int64_t i = 0; i < count; i++) places[(sums[i] >> shift & 255) + 1]++;
        for (int i = 0; i < 256; i++) places[i + 1] += places[i];
        for (int64_t i = 0; i < count; i++) {
            int64_t to = places[sums[i] >> shift & 255]++;
            other_rows[to] = rows[i];
            other_sums[to] = sums[i];
        }
        uint32_t *r = rows; rows = other_rows; other_rows = r;
        uint16_t *n = sums; sums = other_sums; other_sums = n;
    }
}

/* Keep `wanted` of the rows whose sum is `last`, those of the smallest ids, and all before them. */
static int lsq_cut_ties(const lsq_search *s, lsq_hits *hits, uint16_t last, int64_t wanted) {
    lsq_match *ties = (lsq_match *)malloc((size_t)hits->count * sizeof(lsq_match)), *end;
    int64_t count = 0, kept = 0;
    if (!ties) return LSQ_NO_MEMORY;
    for (int64_t i = 0; i < hits->count; i++) {
        if (hits->sums[i] != last) continue;
        ties[count].distance = 0;
        ties[count].row = lsq_search_row(s, hits->rows[i]);
        if (!lsq_name(&s->all->ids, &ties[count++])) {
            free(ties);
            return LSQ_NO_ID;
        }
    }
    lsq_sort_matches(ties, count);
    end = &ties[wanted];
    for (int64_t i = 0; i < hits->count; i++) {
        lsq_match own = {0, lsq_search_row(s, hits->rows[i]), 0, NULL};
        if (hits->sums[i] > last || (hits->sums[i] == last && (!lsq_name(&s->all->ids, &own) || lsq_by_id(&own, end) >= 0)))
            continue;
        hits->sums[kept] = hits->sums[i];
        hits->rows[kept++] = hits->rows[i];
    }
    hits->count = kept;
    free(ties);
    return LSQ_FINE;
}

/* The candidates of query i of the scan by their sums, ascending. */
static int lsq_collect_sums(lsq_search *s, int64_t i, int64_t *count) {
    lsq_hits *hits = &s->scan.hits[i];
    const int64_t wide = s->scan.k;
    if (!lsq_hits_join(s->scan.hits, s->parts, s->some, i)) return LSQ_NO_MEMORY;
    if (hits->count > wide) {
        int64_t below = 0;
        for (int64_t j = 0; j < hits->count; j++) below += hits->sums[j] < hits->kth;
        int ended = lsq_cut_ties(s, hits, hits->kth, wide - below);
        if (ended) return ended;
    }
    uint32_t *rows = s->rows + s->firsts[i];
    float *estimates = s->estimates + s->firsts[i];
    /* (The other half of each is room that is not used yet.) */
    lsq_sort_sums(hits->rows, hits->sums, rows, hits->work, hits->count);
    for (int64_t j = 0; j < hits->count; j++) {
        rows[j] = lsq_search_row(s, hits->rows[j]);
        estimates[j] = (float)hits->sums[j];
    }
    *count = hits->count;
    lsq_hits_clear(hits);
    return LSQ_FINE;
}

/* The same where distances of codes are known. */
static int lsq_collect_distances(lsq_search *s, int64_t i, int64_t *count) {
    lsq_answer nearest = {NULL, 0};
    int ended = lsq_answer_from(&nearest, &s->all->ids, &s->scan.nearest[i], s->scan.k);
    for (int64_t j = 0; !ended && j < nearest.count; j++) {
        s->rows[s->firsts[i] + j] = nearest.matches[j].row;
        s->estimates[s->firsts[i] + j] = nearest.matches[j].distance;
    }
    *count = nearest.count;
    free(nearest.matches);
    return ended;
}

/* Room for the candidates of this scan; 0 without memory. */
static int lsq_search_room(lsq_search *s) {
    const lsq_column *column = &s->all->codes.column;
    int64_t wide = s->scan.k, stored = 0;
    for (int64_t i = 0; i < column->records; i++) stored += column->counts[i];
    int64_t room = s->some * (wide < stored ? wide : stored) + 1;
    if (room <= s->room) return 1;
    free(s->rows);
    free(s->estimates);
    s->rows = (uint32_t *)malloc((size_t)room * sizeof(uint32_t));
    s->estimates = (float *)malloc((size_t)(2 * room) * sizeof(float));
    s->exact = s->estimates ? s->estimates + room : NULL;
    s->room = s->rows && s->estimates ? room : 0;
    return s->room > 0;
}

/* What the scan found: candidates to compare, or, where codes alone decide, the answers. */
static int lsq_search_collect(lsq_search *s) {
    const lsq_prepared *all = s->all;
    if (all->kept && !lsq_search_room(s)) return LSQ_NO_MEMORY;
    s->firsts[0] = 0;
    for (int64_t i = 0; i < s->some; i++) {
        const int64_t q = s->todo[s->at + i];
        int64_t count = 0;
        int ended = LSQ_FINE;
        if (s->scan.by_sums) {
            ended = lsq_collect_sums(s, i, &count);
        } else {
            lsq_nearest *nearest = &s->scan.nearest[i];
            uint8_t sure;
            if (!s->scanner->finish(&s->scan, i, &sure)) return LSQ_NO_MEMORY;
            for (int64_t j = 0; j < nearest->count; j++) nearest->rows[j] = lsq_search_row(s, nearest->rows[j]);
            if (!sure) s->again[s->unsure++] = q;
            else if (all->kept) ended = lsq_collect_distances(s, i, &count);
            else ended = lsq_answer_from(&s->answers[q], &all->ids, nearest, all->k);
        }
        if (ended) return ended;
        s->firsts[i + 1] = s->firsts[i] + count;
    }
    return LSQ_FINE;
}

/* Whether all records that hold candidates have been verified. */
static int lsq_search_verified(const lsq_search *s) {
    if (!s->all->kept || !memchr(s->all->verified, 0, (size_t)s->all->kept->column.records)) return 1;
    for (int64_t i = 0; i < s->firsts[s->some]; i++) {
        int64_t record = lsq_record(&s->all->kept->column, s->rows[i]);
        if (record >= 0 && !s->all->verified[record]) return 0;
    }
    return 1;
}

/* ---- exact distances -------------------------------------------------------------------------------------------------- */

/* Those of one part of all candidates. */
static int lsq_search_compare(const lsq_search *s, int64_t part) {
    const lsq_vectors *kept = s->all->kept;
    const int64_t total = kept ? s->firsts[s->some] : 0, first = part * total / s->parts, last = (part + 1) * total / s->parts;
    for (int64_t i = 0; kept && i < s->some; i++) {
        int64_t from = s->firsts[i] > first ? s->firsts[i] : first, to = s->firsts[i + 1] < last ? s->firsts[i + 1] : last;
        if (from < to && s->rerank(kept->kind, s->all->metric, &kept->column, kept->dim,
                                    &s->targets[s->todo[s->at + i]], s->rows + from, to - from, s->exact + from) >= 0)
            return LSQ_NO_VECTOR;
    }
    return LSQ_FINE;
}

static int lsq_is_zero(const lsq_vectors *kept, uint32_t row) {
    int64_t record = lsq_record(&kept->column, row), width = kept->dim * lsq_number_size(kept->kind) + lsq_scale_size(kept->kind);
    const uint8_t *from = lsq_payload(&kept->column, record) + (uint64_t)(row - kept->column.starts[record]) * (uint64_t)width;
    float scale = lsq_scale_size(kept->kind) ? lsq_load_float(from) : 1;
    for (int64_t i = 0; i < kept->dim; i++)
        if (lsq_number(kept->kind, from + lsq_scale_size(kept->kind), i, scale) != 0) return 0;
    return 1;
}

/* Note the rows of zeros among the candidates of query i: they are at distance 1. */
static int lsq_search_zeros(lsq_search *s, int64_t i) {
    for (int64_t j = s->firsts[i]; j < s->firsts[i + 1]; j++) {
        if (s->exact[j] != 1 || !lsq_is_zero(s->all->kept, s->rows[j])) continue;
        if (s->zero_count == s->zero_room) {
            s->zero_room = 2 * s->zero_room + 64;
            uint32_t *zeros = (uint32_t *)realloc(s->zeros, (size_t)s->zero_room * sizeof(uint32_t));
            if (!zeros) return LSQ_NO_MEMORY;
            s->zeros = zeros;
        }
        s->zeros[s->zero_count++] = s->rows[j];
        s->flags[s->todo[s->at + i]] = LSQ_CROWDED;
    }
    return LSQ_FINE;
}

/* Answers by exact distances, and which queries need more candidates; then the next scan, if there is `more` to do. */
static int lsq_search_rank(lsq_search *s, int *more) {
    const lsq_prepared *all = s->all;
    for (int64_t i = 0; all->kept && i < s->some; i++) {
        const int64_t q = s->todo[s->at + i], first = s->firsts[i], count = s->firsts[i + 1] - first;
        lsq_answer *answer = &s->answers[q];
        s->reranked += count;
        int ended = lsq_answer_of(answer, &all->ids, s->rows + first, s->exact + first, count, all->k, INFINITY);
        if (!ended && all->metric == LSQ_COSINE) ended = lsq_search_zeros(s, i);
        if (ended) return ended;
        if (s->depth + 1 < all->depths && count == s->scan.k && count > 2 && !s->flags[q] && answer->count &&
            lsq_expected_misses(s->estimates + first, s->exact + first, count, answer->matches[answer->count - 1].distance,
                                all->total) > all->missed)
            s->deeper[s->shallow++] = q;
        while (answer->count && answer->matches[answer->count - 1].distance > all->limit) answer->count--;
    }
    return lsq_search_next(s, more);
}

static void lsq_search_free(lsq_search *s) {
    lsq_scan_free(&s->scan);
    for (int64_t q = 0; s->answers && q < s->nq; q++) free(s->answers[q].matches);
    free(s->lists);
    free(s->answers);
    free(s->flags);
    free(s->own);
    free(s->numbers);
    free(s->targets);
    free(s->rows);
    free(s->estimates);
    free(s->zeros);
}

#endif

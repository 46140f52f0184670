/* Runs the kernels on cases from standard input and writes what they return: see run and cases.py.

   A case: int32 header {kind, n, m, a, b}, then the arrays of the kernel. kind 0 feedback, 1 flips
   (a = stride, b = steps), 2 descend (a = levels, b = sweeps), 3 sums of quantized look-ups (n queries, m columns, of
   which a are the head, in b bits), 4 a search (n queries, m columns, of which a are the head, in b parts), 5 exact
   distances of kept vectors (n rows, m dimensions, a = kind, b = metric), 6 posting lists and scores (n rows of m bytes, of
   which a are the head, in b blocks), 7 all vectors in blocks (n rows, m dimensions, a = head, b = metric), 8 tables of linear
   codes (n queries, m dimensions, a = dimensions of codes, b = 1 for directions), 9 nearest and second centres (n rows, m
   dimensions, a centres, b of them), 10 a search of cells (n rows, m dimensions, a cells, b = metric). Little-endian. */
#include "assign.h"
#include "cells.h"
#include "compare.h"
#include "descend.h"
#include "feedback.h"
#include "flips.h"
#include "levels.h"
#include "rerank.h"
#include "scan.h"
#include "scores.h"
#include <stdio.h>
#include <stdlib.h>

static void *take(size_t bytes) {
    void *data = malloc(bytes ? bytes : 1);
    if (!data || fread(data, 1, bytes, stdin) != bytes) exit(1);
    return data;
}

/* Sums of the heads of three blocks, then of the rest, from the last block to the first. */
static void sums(int level, int n, size_t m, size_t head, int bits) {
    enum { BLOCKS = 3 };
    uint8_t *codes = take(BLOCKS * LSQ_BLOCK_ROWS * m), *bytes = take((size_t)n * m * LSQ_LOOKUPS);
    uint16_t *limits = take((size_t)n * 2), *out = malloc((size_t)n * BLOCKS * LSQ_BLOCK_ROWS * 2);
    uint32_t *masks = malloc((size_t)n * BLOCKS * 4), order[BLOCKS] = {2, 1, 0};
    int64_t stride = n * LSQ_PAIR, first = (int64_t)(head + 1) / 2 * stride, rest = (int64_t)(m - head);
    uint8_t *tables = malloc((size_t)(first + (rest + 1) / 2 * stride));
    uint16_t *lookups = malloc((size_t)n * m * LSQ_LOOKUPS * 2);
    for (size_t i = 0; i < (size_t)n * m * LSQ_LOOKUPS; i++) lookups[i] = bytes[i];
    for (int q = 0; q < n; q++, lookups += m * LSQ_LOOKUPS) {
        lsq_spread(lookups, (int64_t)head, 0, 255, tables + q * LSQ_PAIR, stride);
        lsq_spread(lookups + head * LSQ_LOOKUPS, rest, 0, 255, tables + first + q * LSQ_PAIR, stride);
    }
    int64_t apart = n * LSQ_BLOCK_ROWS, size = (int64_t)head * LSQ_BLOCK_ROWS;
    lsq_work work = {codes, (int64_t)head, size, BLOCKS, NULL, tables, stride, out, apart, 0, 0, 0, 0, limits, masks};
    lsq_sums(level, bits, n, &work);
    lsq_work more = {codes + BLOCKS * size, rest, rest * LSQ_BLOCK_ROWS, BLOCKS, order,
                     tables + first, stride, out, apart, 1, 0, 0, 0, limits, masks};
    lsq_sums(level, bits, n, &more);
    for (int r = 0; r < n * BLOCKS * LSQ_BLOCK_ROWS; r++) {
        uint16_t sum = lsq_sum_of(out + r / LSQ_BLOCK_ROWS * LSQ_BLOCK_ROWS, bits, r % LSQ_BLOCK_ROWS);
        fwrite(&sum, 2, 1, stdout);
    }
    fwrite(masks, 4, (size_t)n * BLOCKS, stdout);
}

/* For each query whether it is sure, and the distance of each row, or -1 as an int where it was not found. */
static int search(int level, int64_t nq, size_t width, size_t head, int64_t parts) {
    int64_t *numbers = take(7 * 8), records = numbers[0], rows = numbers[1], fields = numbers[3], size = numbers[4];
    double *z = take(2 * 8); /* and the limit */
    uint32_t *starts = take((size_t)records * 8), *counts = starts + records;
    int64_t *places = take((size_t)(3 * fields + 1) * 8);
    float *values = take((size_t)(nq * size) * 4), *biases = take((size_t)nq * 4), *every = malloc((size_t)rows * 4);
    uint64_t *addresses = malloc((size_t)records * 8);
    for (int64_t i = 0; i < records; i++) {
        uint8_t *record = take(LSQ_HEADER + (counts[i] + 31) / 32 * 32 * width);
        addresses[i] = (uint64_t)(uintptr_t)(record + LSQ_HEADER);
    }
    lsq_codes codes = {{starts, counts, addresses, records}, (int64_t)width, (int64_t)head,
                       {fields, places, places + fields, places + 2 * fields + 1}, {NULL, 0, 1, NULL, 0}};
    lsq_scan scan = {.codes = &codes, .level = level, .nibbles = (int)numbers[5], .progressive = (int)numbers[6],
                     .nq = nq, .k = numbers[2], .parts = parts, .limit = lsq_float_limit(z[1])};
    scan.queries = calloc((size_t)nq, sizeof(lsq_query));
    scan.exact = malloc((size_t)nq * width * LSQ_LOOKUPS * sizeof(float));
    scan.tables = malloc((size_t)(nq * lsq_pairs(&codes)) * LSQ_PAIR);
    scan.hits = calloc((size_t)(nq * parts), sizeof(lsq_hits));
    scan.nearest = calloc((size_t)(nq * parts), sizeof(lsq_nearest));
    for (int64_t q = 0; q < nq; q++) {
        scan.queries[q].values = values + q * size;
        scan.queries[q].bias = biases[q];
        scan.queries[q].exact = scan.exact + q * (int64_t)width * LSQ_LOOKUPS;
    }
    int fine = lsq_scan_prepare(&scan, *z);
    for (int64_t part = 0; part < parts; part++)
        fine = fine && lsq_scan_run(&scan, part, part * records / parts, (part + 1) * records / parts);
    for (int64_t q = 0; fine && q < nq; q++) {
        uint8_t sure;
        fine = lsq_scan_finish(&scan, q, &sure);
        memset(every, 255, (size_t)rows * 4);
        for (int64_t i = 0; sure && i < scan.nearest[q].count; i++)
            every[scan.nearest[q].rows[i]] = scan.nearest[q].distances[i];
        fwrite(&sure, 1, 1, stdout);
        fwrite(every, 4, (size_t)rows, stdout);
    }
    lsq_scan_free(&scan);
    return fine;
}

/* The distance of each row from each of five queries, or -1 as an int where it is beyond the limit. */
static int compare(int level, int metric, uint32_t rows, int64_t dim, int64_t head) {
    enum { QUERIES = 5 };
    double *limit = take(8);
    float *queries = take((size_t)(QUERIES * dim) * 4), *room = malloc((size_t)(QUERIES * lsq_padded(dim)) * 4);
    float *every = malloc(rows * 4);
    const uint8_t *record = take(LSQ_HEADER + (size_t)(rows + 31) / 32 * 32 * (size_t)dim * 4);
    uint32_t start = 0;
    uint64_t address = (uint64_t)(uintptr_t)(record + LSQ_HEADER);
    lsq_vectors vectors = {{&start, &rows, &address, 1}, LSQ_FLOAT32, dim, head, {NULL, 0, 1, NULL, 0}};
    lsq_target targets[QUERIES];
    lsq_nearest nearest[QUERIES];
    lsq_comparison all = {&vectors, level, metric, QUERIES, 1, targets, nearest};
    for (int64_t q = 0; q < QUERIES; q++) {
        targets[q] = lsq_target_of(metric, queries + q * dim, dim, room + q * lsq_padded(dim));
        if (!lsq_nearest_init(&nearest[q], LSQ_ALL, lsq_float_limit(*limit))) return 0;
    }
    if (!lsq_compare(&all, 0, 0, 1)) return 0;
    for (int64_t q = 0; q < QUERIES; q++) {
        memset(every, 255, rows * 4);
        for (int64_t i = 0; i < nearest[q].count; i++) every[nearest[q].rows[i]] = nearest[q].distances[i];
        fwrite(every, 4, rows, stdout);
        lsq_nearest_free(&nearest[q]);
    }
    return 1;
}

/* The lists of each block and table, as they are made; and for each query the score of each row, 0 where it is not found. */
static int lists(int level, int64_t rows, size_t width, int64_t head, int64_t blocks) {
    static lsq_list_work work;
    int64_t *numbers = take(7 * 8), nq = numbers[0], tables = numbers[1], fields = numbers[5], size = numbers[6];
    int64_t *places = take((size_t)(3 * fields + 1) * 8), *first = take((size_t)(tables + 1) * 8);
    uint32_t *firsts = take((size_t)(blocks + 1) * 4), *spans = malloc((size_t)blocks * 4), start = 0, all = (uint32_t)rows;
    float *values = take((size_t)(nq * size) * 4);
    const uint8_t *deleted = take(2048 / 8), *record = take(LSQ_HEADER + (size_t)(rows + 31) / 32 * 32 * width);
    uint64_t address = (uint64_t)(uintptr_t)(record + LSQ_HEADER), *addresses = malloc((size_t)(blocks * tables) * 8);
    uint16_t *scores = malloc((size_t)rows * 2);
    lsq_fields fields_of = {fields, places, places + fields, places + 2 * fields + 1};
    lsq_codes codes = {{&start, &all, &address, 1}, (int64_t)width, head, fields_of, {NULL, 0, 1, NULL, 0}};
    lsq_table *table = malloc((size_t)tables * sizeof(lsq_table));
    for (int64_t block = 0; block < blocks; block++) {
        spans[block] = firsts[block + 1] - firsts[block];
        for (int64_t t = 0; t < tables; t++) {
            int64_t bit = fields_of.bits[first[t]];
            int bits = (int)(fields_of.bits[first[t + 1]] - bit);
            table[t] = (lsq_table){first[t], first[t + 1] - first[t], bits};
            int64_t n = lsq_buckets(&codes, bit, bits, firsts[block], firsts[block + 1], work.buckets[0], work.rows[0]);
            uint8_t *list = malloc((size_t)lsq_list_size(bits, n) + 1) + 1; /* at any address */
            lsq_list_build(&work, n, bits, list);
            if (!lsq_list_sound(list, lsq_list_size(bits, n), bits, (uint32_t)n, spans[block])) return 0;
            fwrite(list, 1, (size_t)lsq_list_size(bits, n), stdout);
            addresses[block * tables + t] = (uint64_t)(uintptr_t)list;
        }
    }
    lsq_lists lists = {firsts, spans, spans, addresses, blocks, tables, table, NULL, 0, 32, {&deleted, 1, 2048, NULL, 0}};
    lsq_scorer scorer;
    int fine = lsq_scorer_begin(&scorer, &lists, &fields_of, numbers[3]);
    for (int64_t q = 0; fine && q < nq; q++) {
        lsq_probes_begin(&scorer.probes, values + q * size);
        fine = lsq_score(level, &lists, &scorer, numbers[2], numbers[4] && tables <= 127 ? (uint32_t)(255 / tables) : 1);
        memset(scores, 0, (size_t)rows * 2);
        for (int64_t i = 0; i < scorer.best.count; i++) scores[scorer.best.rows[i]] = scorer.best.scores[i];
        fwrite(scores, 2, (size_t)rows, stdout);
    }
    lsq_scorer_free(&scorer);
    return fine;
}

/* The look-ups of each query, and what is added to them. */
static void tables(int level, int64_t n, int64_t dim, int64_t m, int unit) {
    int64_t *numbers = take(3 * 8), levels = numbers[0], steps = numbers[1], rows = numbers[2];
    float *matrix = take((size_t)(rows * dim) * 4), *theta = take((size_t)levels * 4), *four = take(4 * 4);
    float *known = take((size_t)(steps + m * levels) * 4), *centre = take((size_t)(rows == m ? dim : 0) * 4);
    float *queries = take((size_t)(n * dim) * 4), *packed = malloc((size_t)lsq_packed_size(rows, dim) * 4);
    lsq_pack_matrix(matrix, rows, dim, packed);
    lsq_linear linear = {dim, m, levels, steps, rows, packed, rows == m ? centre : NULL, known, theta, unit,
                         four[0], four[1], four[2], four[3]};
    float *values = malloc((size_t)(n * lsq_lookups_of(&linear)) * 4), *bias = malloc((size_t)n * 4);
    float *work = malloc((size_t)lsq_tables_work(&linear, LSQ_TABLES_AT_ONCE) * 4);
    for (int64_t q = 0; q < n; q += LSQ_TABLES_AT_ONCE)
        lsq_tables_of(level, &linear, queries + q * dim, n - q < LSQ_TABLES_AT_ONCE ? n - q : LSQ_TABLES_AT_ONCE,
                      values + q * lsq_lookups_of(&linear), bias + q, work);
    for (int64_t i = 0; i < n * lsq_lookups_of(&linear); i++) values[i] += 0; /* no -0 */
    fwrite(values, 4, (size_t)(n * lsq_lookups_of(&linear)), stdout);
    fwrite(bias, 4, (size_t)n, stdout);
}

/* The labels and squares of the k nearest centres of each row, and which of them is its second cell. */
static void centres(int level, int64_t n, int64_t dim, int64_t m, int64_t k) {
    float *rows = take((size_t)(n * dim) * 4), *points = take((size_t)(m * dim) * 4);
    float *packed = malloc((size_t)lsq_packed_size(m, dim) * 4), *halves = malloc((size_t)m * 4);
    float *scores = malloc((size_t)(LSQ_ASSIGN_ROWS * m) * 4), *squares = malloc((size_t)(n * k) * 4);
    uint32_t *labels = malloc((size_t)(n * k) * 4), *work = malloc((size_t)k * 4);
    lsq_pack_matrix(points, m, dim, packed);
    for (int64_t i = 0; i < m; i++) {
        double square = 0;
        for (int64_t j = 0; j < dim; j++) square += (double)points[i * dim + j] * points[i * dim + j];
        halves[i] = (float)(square / 2);
    }
    for (int64_t at = 0; at < n; at += LSQ_ASSIGN_ROWS)
        lsq_nearest_centres(level, rows + at * dim, n - at < LSQ_ASSIGN_ROWS ? n - at : LSQ_ASSIGN_ROWS, dim, points, packed, halves,
                            m, k, scores, work, labels + at * k, squares + at * k);
    fwrite(labels, 4, (size_t)(n * k), stdout);
    fwrite(squares, 4, (size_t)(n * k), stdout);
    for (int64_t i = 0; i < n; i++) {
        int32_t second = (int32_t)lsq_spill(level, rows + i * dim, dim, points, labels + i * k, squares + i * k, k, scores);
        fwrite(&second, 4, 1, stdout);
    }
}

/* The distance of each row, or -1 as an int where it was not found; cells visited, rows read and compared. */
static int cells(int level, uint32_t rows, int64_t dim, int64_t count, int metric) {
    int64_t *numbers = take(10 * 8), width = numbers[0], head = numbers[1], fields = numbers[2], size = numbers[3];
    float *rule = take(5 * 4);
    int64_t *places = take((size_t)(3 * fields + 1) * 8);
    uint32_t *sizes = take((size_t)(2 * count) * 4), start = 0, centre_count = (uint32_t)count, one = 1;
    uint64_t *addresses = malloc((size_t)(2 * count) * 8);
    uint8_t *centre_numbers = take((size_t)(count * dim) * 2);
    const uint8_t *centre_codes = take((size_t)((count + 31) / 32 * 32 * width));
    const float *near = take((size_t)count * 4), *spreads = take((size_t)count * 4);
    const uint8_t *record = take(LSQ_HEADER + (size_t)((rows + 31) / 32 * 32) * (size_t)width);
    const uint8_t *own = take((size_t)rows * (size_t)dim * 4), *allowed = take((rows + 7) / 8), *there = (const uint8_t *)&one;
    const float *query = take((size_t)dim * 4), *values = take((size_t)size * 4), *bias = take(4);
    for (int64_t i = 0; i < 2 * count; i++) {
        const size_t entries = (sizes[i] + 31) / 32 * 32;
        addresses[i] = (uint64_t)(uintptr_t)((uint8_t *)take(LSQ_HEADER + entries * ((size_t)width + 4)) + LSQ_HEADER);
    }
    uint64_t at = (uint64_t)(uintptr_t)(record + LSQ_HEADER), kept_at = (uint64_t)(uintptr_t)own;
    uint64_t centres_at = (uint64_t)(uintptr_t)centre_numbers;
    lsq_vectors kept = {{&start, &rows, &kept_at, 1}, LSQ_FLOAT32, dim, 0, {NULL, 0, 1, NULL, 0}};
    lsq_cells_plan plan = {.nibbles = (int)numbers[4], .fresh = (uint32_t)numbers[5], .there = there, .chunks = 1,
                           .chunk_rows = 1u << 30, .lookups = size, .dim = dim, .kept = numbers[6] ? &kept : NULL,
                           .row_size = 4 * dim, .metric = metric, .level = level, .rerank = lsq_rerank_at(level), .k = numbers[7],
                           .limit = INFINITY, .reach = rule[0], .slope = rule[1], .tau = rule[2], .misses = rule[3],
                           .lost = rule[4], .probes = numbers[8], .depth = numbers[9]};
    plan.codes = (lsq_codes){{&start, &rows, &at, 1}, width, head, {fields, places, places + fields, places + 2 * fields + 1},
                             {NULL, 0, 1, allowed, rows}};
    plan.cells = (lsq_cells){.count = count, .addresses = addresses, .sizes = sizes, .centre_codes = centre_codes,
                             .centres = {&start, &centre_count, &centres_at, 1}, .near = near, .spreads = spreads};
    for (int64_t i = 0; i < 2 * count; i++) plan.cells.entries += sizes[i];
    lsq_cells_work work;
    lsq_visits visits;
    float *every = malloc(rows * 4);
    if (!lsq_cells_work_init(&work, &plan) || lsq_cells_search(&plan, &work, query, values, *bias, 0, &visits)) return 0;
    memset(every, 255, rows * 4);
    for (int64_t i = 0; i < work.nearest.count; i++) every[work.nearest.rows[i]] = work.nearest.distances[i];
    fwrite(every, 4, rows, stdout);
    fwrite(&visits, 8, 3, stdout);
    lsq_cells_work_free(&work);
    return 1;
}

int main(int count, char **arguments) {
    int level = count > 1 ? atoi(arguments[1]) : LSQ_PORTABLE;
    if (!lsq_simd_available(level)) return 2;
    int32_t head[5];
    while (fread(head, sizeof head, 1, stdin) == 1) {
        size_t n = (size_t)head[1], m = (size_t)head[2], a = (size_t)head[3];
        if (head[0] == 0) {
            float *c = take(n * m * 4), *columns = take(m * m * 4);
            uint8_t *bits = malloc(n * m + 1);
            lsq_feedback(level, bits, c, columns, (int64_t)n, (int32_t)m);
            fwrite(bits, 1, n * m, stdout);
        } else if (head[0] == 1) {
            uint8_t *bits = take(n * m);
            int32_t *r = take(n * m * 4), *g2 = take((m + 1) * a * 4), *diagonal = take(m * 4);
            int32_t *work = malloc(4 * a * 4), low = 1;
            while ((size_t)low < a) low *= 2;
            lsq_flips(level, bits, r, g2, diagonal, work, (int64_t)n, (int32_t)m, (int32_t)a, head[4], low - 1);
            fwrite(bits, 1, n * m, stdout);
        } else if (head[0] == 3) {
            sums(level, (int)n, m, a, head[4]);
        } else if (head[0] == 4) {
            if (!search(level, (int64_t)n, m, a, head[4])) return 4;
        } else if (head[0] == 6) {
            if (!lists(level, (int64_t)n, m, (int64_t)a, head[4])) return 5;
        } else if (head[0] == 5) {
            size_t width = (size_t)(lsq_number_size(head[3]) * head[2] + lsq_scale_size(head[3]));
            uint8_t *data = take(n * width);
            float *query = take(m * 4), *room = malloc((m + LSQ_WIDE) * 4), *out = malloc(n * 4);
            uint32_t start = 0, rows = (uint32_t)n, *numbers = malloc(n * 4);
            uint64_t address = (uint64_t)(uintptr_t)data;
            for (size_t i = 0; i < n; i++) numbers[i] = (uint32_t)(n - 1 - i);
            lsq_column column = {&start, &rows, &address, 1};
            lsq_target target = lsq_target_of(head[4], query, (int64_t)m, room);
            if (lsq_rerank_at(level)(head[3], head[4], &column, (int64_t)m, &target, numbers, (int64_t)n, out) >= 0) return 3;
            fwrite(out, 4, n, stdout);
        } else if (head[0] == 7) {
            if (!compare(level, head[4], (uint32_t)n, (int64_t)m, (int64_t)a)) return 6;
        } else if (head[0] == 8) {
            tables(level, (int64_t)n, (int64_t)m, (int64_t)a, head[4]);
        } else if (head[0] == 9) {
            centres(level, (int64_t)n, (int64_t)m, (int64_t)a, head[4]);
        } else if (head[0] == 10) {
            if (!cells(level, (uint32_t)n, (int64_t)m, (int64_t)a, head[4])) return 7;
        } else {
            uint16_t *levels = take(n * m * 2);
            float *r = take(n * m * 4), *g = take(m * m * 4);
            lsq_descend(level, levels, r, g, (int64_t)n, (int32_t)m, head[3], head[4]);
            fwrite(levels, 2, n * m, stdout);
            fwrite(r, 4, n * m, stdout);
        }
    }
    return 0;
}

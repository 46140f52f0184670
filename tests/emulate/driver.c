/* Runs the kernels on cases from standard input and writes what they return: see run and cases.py.

   A case: int32 header {kind, n, m, a, b}, then the arrays of the kernel. kind 0 feedback, 1 flips
   (a = stride, b = steps), 2 descend (a = levels, b = sweeps), 3 masks of the scan (n queries, m columns, of which a
   are the head), 4 quantized look-ups and exact distances (n queries, m columns), 5 exact
   distances of kept vectors (n rows, m dimensions, a = kind, b = metric). Little-endian. */
#include "descend.h"
#include "exact.h"
#include "feedback.h"
#include "flips.h"
#include "scan.h"
#include <stdio.h>
#include <stdlib.h>

static void *take(size_t bytes) {
    void *data = malloc(bytes ? bytes : 1);
    if (!data || fread(data, 1, bytes, stdin) != bytes) exit(1);
    return data;
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
            uint8_t *codes = take(LSQ_BLOCK_ROWS * m), *tables = take(n * m * LSQ_TABLE);
            uint16_t *limits = take(n * 2);
            uint32_t *masks = malloc(n * 4);
            lsq_block block = {codes, codes + LSQ_BLOCK_ROWS * a, (int64_t)a, (int64_t)(m - a)};
            lsq_masks(level, &block, tables, (int)n, limits, masks);
            fwrite(masks, 4, n, stdout);
        } else if (head[0] == 4) {
            uint8_t *codes = take(LSQ_BLOCK_ROWS * m), *tables = malloc(n * m * LSQ_TABLE);
            float *exact = take(n * m * LSQ_TABLE * 4), *bias = take(n * 4);
            lsq_block block = {codes, codes, (int64_t)m, 0};
            for (size_t q = 0; q < n; q++) {
                lsq_query query = {.exact = exact + q * m * LSQ_TABLE, .bias = bias[q]};
                lsq_quantize(&query, (int64_t)m, tables + q * LSQ_TABLE, (int64_t)n * LSQ_TABLE);
                fwrite(&query.base, 8, 1, stdout);
                fwrite(&query.step, 8, 1, stdout);
                for (int lane = 0; lane < LSQ_BLOCK_ROWS; lane++) {
                    float distance = lsq_nibble_distance(&block, lane, &query);
                    fwrite(&distance, 4, 1, stdout);
                }
            }
            fwrite(tables, 1, n * m * LSQ_TABLE, stdout);
        } else if (head[0] == 5) {
            size_t width = (size_t)(lsq_number_size(head[3]) * head[2] + lsq_scale_size(head[3]));
            uint8_t *data = take(n * width);
            float *query = take(m * 4), *room = malloc((m + LSQ_WIDE) * 4), *out = malloc(n * 4);
            uint32_t start = 0, rows = (uint32_t)n, *numbers = malloc(n * 4);
            uint64_t address = (uint64_t)(uintptr_t)data;
            for (size_t i = 0; i < n; i++) numbers[i] = (uint32_t)(n - 1 - i);
            lsq_column column = {&start, &rows, &address, 1};
            lsq_kept kept = {&column, head[3], head[4], (int64_t)m};
            if (lsq_distances(level, &kept, query, room, numbers, (int64_t)n, out) >= 0) return 3;
            fwrite(out, 4, n, stdout);
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

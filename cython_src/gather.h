/* Copies of some rows of a column: bytes, int ids, strings.
 *
 * Strings lie as end offsets (uint32, one a row) and then their bytes; int ids in 4 or 8 bytes.
 */
#ifndef LSQ_GATHER_H
#define LSQ_GATHER_H

#include "column.h"

/* Copy `n` rows of `width` bytes; the position of a row that no record holds, or -1. */
static inline int64_t lsq_gather(const lsq_column *column, const uint32_t *rows, int64_t n, int64_t width, int64_t head, uint8_t *out) {
    for (int64_t i = 0; i < n; i++, out += width) {
        int64_t record = lsq_record(column, rows[i]);
        if (record < 0) return i;
        const uint8_t *payload = lsq_payload(column, record);
        uint64_t at = rows[i] - column->starts[record];
        if (!head) {
            memcpy(out, payload + at * (uint64_t)width, (size_t)width);
            continue;
        }
        lsq_block block = lsq_block_in(payload, width, head, at / LSQ_BLOCK_ROWS);
        for (int64_t j = 0; j < width; j++) out[j] = lsq_block_column(&block, j)[at % LSQ_BLOCK_ROWS];
    }
    return -1;
}

/* The int ids of rows: 8 bytes each, or 4 without a sign where a record's header says so. The position of a row that
 * no record holds, or -1. */
static int64_t lsq_gather_ints(const lsq_column *column, const uint32_t *rows, int64_t n, int64_t *out) {
    for (int64_t i = 0; i < n; i++) {
        int64_t record = lsq_record(column, rows[i]);
        if (record < 0) return i;
        const uint8_t *payload = lsq_payload(column, record);
        uint64_t at = rows[i] - column->starts[record];
        out[i] = lsq_load32(payload - LSQ_HEADER + LSQ_HEADER_WIDTH) == 4 ? (int64_t)lsq_load32(payload + 4 * at)
                                                                           : (int64_t)lsq_load64(payload + 8 * at);
    }
    return -1;
}

/* The bytes of a string row. The record's offsets were checked when it was first touched. */
static inline int lsq_string(const lsq_column *column, uint32_t row, const uint8_t **bytes, uint32_t *size) {
    int64_t record = lsq_record(column, row);
    if (record < 0) return 0;
    const uint8_t *payload = lsq_payload(column, record);
    uint32_t at = row - column->starts[record], begin = at ? lsq_load32(payload + 4 * (at - 1)) : 0;
    *bytes = payload + 4 * lsq_rows_in(payload) + begin;
    *size = lsq_load32(payload + 4 * at) - begin;
    return 1;
}

#endif

/* A column where it lies: a list of records in row order, inside LMDB's map.
 *
 * Record i holds the rows starts[i] … starts[i] + counts[i] − 1, and its payload begins at addresses[i]. Rows of fixed
 * width lie one after another, or in blocks of 32 rows by column: byte j of the 32 rows side by side, first the blocks of
 * the first `head` bytes of all rows of the record, then those of the rest.
 */
#ifndef LSQ_COLUMN_H
#define LSQ_COLUMN_H

#include <stdint.h>

#include "bytes.h"
#include "header.h"
#include "simd.h"

enum { LSQ_BLOCK_ROWS = 32 };
enum { LSQ_HEADER_COUNT = 4, LSQ_HEADER_WIDTH = 16 }; /* where the header has them */

typedef struct {
    const uint32_t *starts, *counts;
    const uint64_t *addresses;
    int64_t records;
} lsq_column;

LSQ_INLINE const uint8_t *lsq_payload(const lsq_column *column, int64_t record) {
    return (const uint8_t *)(uintptr_t)column->addresses[record];
}

/* The record of a row, or -1. Halves without a branch: which half it is cannot be foreseen. */
static inline int64_t lsq_record(const lsq_column *column, uint32_t row) {
    const uint32_t *first = column->starts;
    for (int64_t left = column->records; left > 1;) {
        int64_t half = left / 2;
        first += first[half] <= row ? half : 0;
        left -= half;
    }
    int64_t at = first - column->starts;
    return column->records > 0 && row >= *first && row - *first < column->counts[at] ? at : -1;
}

/* How many rows a record holds, by its own header: more than counts[] shows, where an add is unfinished. */
static inline uint64_t lsq_rows_in(const uint8_t *payload) { return lsq_load32(payload - LSQ_HEADER + LSQ_HEADER_COUNT); }

/* The columns of a block: the first `heads` from `head` on, the others from `tail` on. The columns of the next block
 * follow each of them. */
typedef struct { const uint8_t *head, *tail; int64_t heads, tails; } lsq_block;

LSQ_INLINE const uint8_t *lsq_block_column(const lsq_block *block, int64_t j) {
    return j < block->heads ? block->head + j * LSQ_BLOCK_ROWS : block->tail + (j - block->heads) * LSQ_BLOCK_ROWS;
}

/* Block `at` of a payload, whose rows have `width` bytes, `head` of them in the head. */
LSQ_INLINE lsq_block lsq_block_in(const uint8_t *payload, int64_t width, int64_t head, uint64_t at) {
    uint64_t blocks = (lsq_rows_in(payload) + LSQ_BLOCK_ROWS - 1) / LSQ_BLOCK_ROWS;
    uint64_t first = (uint64_t)head, rest = (uint64_t)(width - head);
    lsq_block block = {payload + at * LSQ_BLOCK_ROWS * first, payload + (blocks * first + at * rest) * LSQ_BLOCK_ROWS,
                       head, (int64_t)rest};
    return block;
}

#endif

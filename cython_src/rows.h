/* Rows of a column, found by number across the records that hold them.
 *
 * A column (codes, ids, vectors) is a list of records in row order: record i holds rows
 * starts[i] … starts[i] + counts[i] − 1, and its payload begins at address[i], inside LMDB's map.
 * Fixed-width rows lie one after another, or in blocks of 32 by column (byte j of 32 rows side by
 * side; first the blocks of the first `head` bytes, then those of the rest); strings as end offsets
 * (uint32, one a row) and then their bytes; int ids in 4 or 8 bytes.
 */
#ifndef LSQ_ROWS_H
#define LSQ_ROWS_H

#include <stdint.h>
#include <string.h>

#include "checksum.h"

enum { LSQ_BLOCK_ROWS = 32 };
enum { LSQ_HEADER = 48, LSQ_HEADER_COUNT = 4, LSQ_HEADER_WIDTH = 16 }; /* _storage/format/records.py */

typedef struct {
    const uint32_t *starts, *counts;
    const uint64_t *addresses;
    int64_t records;
} lsq_column;

/* Whether a record of full blocks of codes is what it should be: its header field by field, and its checksum. */
static int lsq_record_sound(const uint8_t *payload, uint64_t first, uint32_t count, uint8_t kind, uint32_t width,
                            uint32_t generation, uint32_t head) {
    const uint8_t *h = payload - LSQ_HEADER;
    uint64_t size = (uint64_t)((count + LSQ_BLOCK_ROWS - 1) / LSQ_BLOCK_ROWS) * LSQ_BLOCK_ROWS * width;
    return memcmp(h, "LSQ", 3) == 0 && h[3] == kind && lsq_load32(h + 4) == count && lsq_load64(h + 8) == first &&
           lsq_load32(h + 16) == width && lsq_load32(h + 20) == generation && lsq_load64(h + 24) == size &&
           lsq_load32(h + 32) == head && lsq_load32(h + 36) == 0 &&
           lsq_load64(h + 40) == lsq_checksum(payload, size, lsq_checksum(h, 40, 0));
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

/* Copy `n` rows of `width` bytes; the position of a row that no record holds, or -1. */
static int64_t lsq_gather(const lsq_column *column, const uint32_t *rows, int64_t n, int64_t width, int64_t head, uint8_t *out) {
    for (int64_t i = 0; i < n; i++, out += width) {
        int64_t record = lsq_record(column, rows[i]);
        if (record < 0) return i;
        const uint8_t *payload = (const uint8_t *)(uintptr_t)column->addresses[record];
        uint64_t at = rows[i] - column->starts[record];
        if (!head) {
            memcpy(out, payload + at * (uint64_t)width, (size_t)width);
            continue;
        }
        uint64_t blocks = (lsq_rows_in(payload) + LSQ_BLOCK_ROWS - 1) / LSQ_BLOCK_ROWS, block = at / LSQ_BLOCK_ROWS;
        uint64_t lane = at % LSQ_BLOCK_ROWS, rest = (uint64_t)(width - head);
        const uint8_t *first = payload + block * LSQ_BLOCK_ROWS * (uint64_t)head + lane;
        const uint8_t *second = payload + (blocks * (uint64_t)head + block * rest) * LSQ_BLOCK_ROWS + lane;
        for (int64_t j = 0; j < head; j++) out[j] = first[j * LSQ_BLOCK_ROWS];
        for (int64_t j = head; j < width; j++) out[j] = second[(j - head) * LSQ_BLOCK_ROWS];
    }
    return -1;
}

/* The int ids of rows: 8 bytes each, or 4 without a sign where a record's header says so. The position of a row that
 * no record holds, or -1. */
static int64_t lsq_gather_ints(const lsq_column *column, const uint32_t *rows, int64_t n, int64_t *out) {
    for (int64_t i = 0; i < n; i++) {
        int64_t record = lsq_record(column, rows[i]);
        if (record < 0) return i;
        const uint8_t *payload = (const uint8_t *)(uintptr_t)column->addresses[record];
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
    const uint8_t *payload = (const uint8_t *)(uintptr_t)column->addresses[record];
    uint32_t at = row - column->starts[record], begin = at ? lsq_load32(payload + 4 * (at - 1)) : 0;
    *bytes = payload + 4 * lsq_rows_in(payload) + begin;
    *size = lsq_load32(payload + 4 * at) - begin;
    return 1;
}

/* Where each of `n` ids belongs among `rows`, which are sorted by their ids: the first place whose id is
 * not smaller, and whether it is equal. The number of an id whose search met an unknown row, or -1. */
static int64_t lsq_find_ints(const lsq_column *column, const uint32_t *rows, int64_t count, const int64_t *ids, int64_t n,
                             int64_t *places, uint8_t *found) {
    for (int64_t i = 0; i < n; i++) {
        int64_t low = 0, high = count;
        found[i] = 0;
        while (low < high) {
            int64_t middle = (low + high) / 2, id;
            if (lsq_gather_ints(column, rows + middle, 1, &id) >= 0) return i;
            if (id < ids[i]) { low = middle + 1; continue; }
            if (id == ids[i]) found[i] = 1;
            high = middle;
        }
        places[i] = low;
    }
    return -1;
}

static int64_t lsq_find_strings(const lsq_column *column, const uint32_t *rows, int64_t count, const uint8_t *text,
                                const uint32_t *ends, int64_t n, int64_t *places, uint8_t *found) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t begin = i ? ends[i - 1] : 0, length = ends[i] - begin, size;
        const uint8_t *bytes;
        int64_t low = 0, high = count;
        found[i] = 0;
        while (low < high) {
            int64_t middle = (low + high) / 2;
            if (!lsq_string(column, rows[middle], &bytes, &size)) return i;
            int order = memcmp(bytes, text + begin, size < length ? size : length);
            if (order == 0) order = (size > length) - (size < length);
            if (order < 0) { low = middle + 1; continue; }
            if (order == 0) found[i] = 1;
            high = middle;
        }
        places[i] = low;
    }
    return -1;
}

#endif

/* The entries of a cell, as its record holds them.

       codes    blocks of 32 by column, heads first, as a record of the codes column (column.h)
       rows     uint32, one an entry, ascending
   both padded to a multiple of 32 entries: codes with zeros, rows with 0xFFFFFFFF. */
#ifndef LSQ_ENTRIES_H
#define LSQ_ENTRIES_H

#include <string.h>

#include "checksum.h"
#include "column.h"

#define LSQ_NO_ROW 0xFFFFFFFFu

LSQ_INLINE uint64_t lsq_padded(uint64_t count) { return (count + LSQ_BLOCK_ROWS - 1) / LSQ_BLOCK_ROWS * LSQ_BLOCK_ROWS; }

/* Bytes of a payload of `count` entries. */
LSQ_INLINE uint64_t lsq_entries_size(uint64_t count, uint64_t width) { return lsq_padded(count) * (width + 4); }

/* The payload of `count` entries, whose codes are `width` bytes each, one after another. */
static void lsq_entries_pack(const uint8_t *codes, const uint32_t *rows, uint64_t count, uint64_t width, uint64_t head,
                             uint8_t *to) {
    uint64_t padded = lsq_padded(count), rest = width - head;
    uint8_t *tails = to + padded * head;
    memset(to, 0, (size_t)(padded * width));
    for (uint64_t i = 0; i < count; i++, codes += width) {
        uint64_t block = i / LSQ_BLOCK_ROWS, lane = i % LSQ_BLOCK_ROWS;
        uint8_t *first = to + block * LSQ_BLOCK_ROWS * head + lane, *second = tails + block * LSQ_BLOCK_ROWS * rest + lane;
        for (uint64_t j = 0; j < head; j++) first[j * LSQ_BLOCK_ROWS] = codes[j];
        for (uint64_t j = 0; j < rest; j++) second[j * LSQ_BLOCK_ROWS] = codes[head + j];
    }
    to += padded * width;
    memcpy(to, rows, (size_t)count * sizeof(uint32_t));
    memset(to + count * sizeof(uint32_t), 0xFF, (size_t)((padded - count) * sizeof(uint32_t)));
}

/* The inverse. */
static void lsq_entries_unpack(const uint8_t *payload, uint64_t count, uint64_t width, uint64_t head, uint8_t *codes,
                               uint32_t *rows) {
    uint64_t padded = lsq_padded(count), rest = width - head;
    const uint8_t *tails = payload + padded * head;
    for (uint64_t i = 0; i < count; i++, codes += width) {
        uint64_t block = i / LSQ_BLOCK_ROWS, lane = i % LSQ_BLOCK_ROWS;
        const uint8_t *first = payload + block * LSQ_BLOCK_ROWS * head + lane;
        const uint8_t *second = tails + block * LSQ_BLOCK_ROWS * rest + lane;
        for (uint64_t j = 0; j < head; j++) codes[j] = first[j * LSQ_BLOCK_ROWS];
        for (uint64_t j = 0; j < rest; j++) codes[head + j] = second[j * LSQ_BLOCK_ROWS];
    }
    memcpy(rows, payload + padded * width, (size_t)count * sizeof(uint32_t));
}

/* Whether the rows of a payload ascend, are below `limit`, and are followed by nothing but padding. */
static int lsq_entries_sound(const uint8_t *payload, uint64_t count, uint64_t width, uint32_t limit) {
    uint64_t padded = lsq_padded(count);
    const uint8_t *rows = payload + padded * width;
    uint64_t next = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t row = lsq_load32(rows + 4 * i);
        if (row < next || row >= limit) return 0;
        next = (uint64_t)row + 1;
    }
    for (uint64_t i = count; i < padded; i++)
        if (lsq_load32(rows + 4 * i) != LSQ_NO_ROW) return 0;
    return 1;
}

/* Whether a record is what it should be: its header field by field, and its checksum. */
static int lsq_record_is(const uint8_t *record, uint64_t size, uint8_t kind, uint64_t first, uint32_t width,
                         uint32_t generation, uint32_t head) {
    return size >= LSQ_HEADER && memcmp(record, "LSQ", 3) == 0 && record[3] == kind && lsq_load64(record + 8) == first &&
           lsq_load32(record + 16) == width && lsq_load32(record + 20) == generation &&
           lsq_load64(record + 24) == size - LSQ_HEADER && lsq_load32(record + 32) == head && lsq_load32(record + 36) == 0 &&
           lsq_load64(record + 40) == lsq_checksum(record + LSQ_HEADER, size - LSQ_HEADER, lsq_checksum(record, 40, 0));
}

#endif

/* Posting lists: which rows of a block are in which bucket of a table.
 *
 * A block is a run of at most LSQ_SPAN rows. The lists of one of its tables are one payload:
 *
 *     starts   uint16, 2^d + 1 of them, d = min(bits, 14): where the rows begin whose bucket's upper d bits are i (a bin)
 *     rows     uint16, one a row of the block, counted from its first: by bucket, and within a bucket rising
 *     low      uint8, one a row, where bits > 14: the lower bits − 14 bits of its bucket
 *
 * So a table of more bits costs a byte a row, and not a start for each of a million buckets that are mostly empty.
 * Payloads lie in LMDB's map, at any address.
 */
#ifndef LSQ_LISTS_H
#define LSQ_LISTS_H

#include <string.h>

#include "codes.h"

enum { LSQ_SPAN = 65024, LSQ_DIRECTORY_BITS = 14, LSQ_TABLE_BITS = 20 };

LSQ_INLINE int lsq_directory_bits(int bits) { return bits < LSQ_DIRECTORY_BITS ? bits : LSQ_DIRECTORY_BITS; }
LSQ_INLINE int64_t lsq_bins(int bits) { return (int64_t)1 << lsq_directory_bits(bits); }

/* Bytes of a payload of `count` rows. */
LSQ_INLINE int64_t lsq_list_size(int bits, int64_t count) {
    return 2 * (lsq_bins(bits) + 1) + (bits > LSQ_DIRECTORY_BITS ? 3 : 2) * count;
}

LSQ_INLINE uint32_t lsq_list_start(const uint8_t *list, int64_t bin) { return lsq_load16(list + 2 * bin); }
LSQ_INLINE const uint8_t *lsq_list_rows(const uint8_t *list, int bits) { return list + 2 * (lsq_bins(bits) + 1); }

/* How many of `n` rising bytes are below `limit`. Halves without a branch, and counts what is left. */
LSQ_INLINE uint32_t lsq_below(const uint8_t *bytes, uint32_t n, uint32_t limit) {
    const uint8_t *first = bytes;
    uint32_t count = 0;
    for (; n > 32; n -= n / 2) first += first[n / 2 - 1] < limit ? n / 2 : 0;
    for (uint32_t i = 0; i < n; i++) count += first[i] < limit;
    return (uint32_t)(first - bytes) + count;
}

LSQ_INLINE int64_t lsq_bin(int bits, uint32_t bucket) { return bucket >> (bits - lsq_directory_bits(bits)); }

/* Where the rows of a bucket's bin begin and end: those of the bucket itself, where a bin is one. */
LSQ_INLINE void lsq_bin_range(const uint8_t *list, int bits, uint32_t bucket, uint32_t *from, uint32_t *to) {
    int64_t bin = lsq_bin(bits, bucket);
    *from = lsq_list_start(list, bin);
    *to = lsq_list_start(list, bin + 1);
}

/* Where in its bin, by the lower bits of all rows, a bucket begins and ends. */
LSQ_INLINE void lsq_narrow(const uint8_t *low, int bits, uint32_t bucket, uint32_t *from, uint32_t *to) {
    uint32_t lower = bucket & ((1u << (bits - LSQ_DIRECTORY_BITS)) - 1);
    *from += lsq_below(low + *from, *to - *from, lower);
    *to = *from + lsq_below(low + *from, *to - *from, lower + 1);
}

/* ---- making them ------------------------------------------------------------------------------------------------- */

/* The bucket and the number (less `first`) of every row from `first` to `end` that the codes hold; how many. */
static int64_t lsq_buckets(const lsq_codes *codes, int64_t bit, int bits, uint32_t first, uint32_t end, uint32_t *buckets,
                           uint16_t *rows) {
    const lsq_column *column = &codes->column;
    int64_t n = 0, byte = bit >> 3, last = (bit + bits - 1) >> 3, shift = bit & 7;
    uint32_t mask = (1u << bits) - 1;
    for (int64_t i = 0; i < column->records; i++) {
        uint32_t start = column->starts[i], stop = start + column->counts[i];
        if (stop <= first || start >= end) continue;
        uint32_t from = start < first ? first : start, to = stop < end ? stop : end;
        for (uint32_t row = from; row < to;) {
            uint32_t at = row - start, lane = at % LSQ_BLOCK_ROWS, lanes = LSQ_BLOCK_ROWS - lane;
            lsq_block block = lsq_block_at(codes, i, at / LSQ_BLOCK_ROWS);
            if (lanes > to - row) lanes = to - row;
            for (uint32_t j = 0; j < lanes; j++) {
                buckets[n + j] = 0;
                rows[n + j] = (uint16_t)(row + j - first);
            }
            for (int64_t b = byte; b <= last; b++) {
                const uint8_t *bytes = lsq_block_column(&block, b) + lane;
                int64_t left = 8 * (b - byte) - shift;
                for (uint32_t j = 0; j < lanes; j++)
                    buckets[n + j] |= left < 0 ? (uint32_t)bytes[j] >> -left : (uint32_t)bytes[j] << left;
            }
            for (uint32_t j = 0; j < lanes; j++) buckets[n + j] &= mask;
            n += lanes;
            row += lanes;
        }
    }
    return n;
}

/* Rows and their buckets, ordered by `width` bits of these from `shift` on; equal ones stay in order. */
static void lsq_counting_sort(const uint32_t *buckets, const uint16_t *rows, int64_t n, int shift, int width, uint32_t *ends,
                              uint32_t *to_buckets, uint16_t *to_rows) {
    uint32_t mask = (1u << width) - 1, before = 0;
    memset(ends, 0, sizeof(*ends) << width);
    for (int64_t i = 0; i < n; i++) ends[buckets[i] >> shift & mask]++;
    for (uint32_t b = 0; b <= mask; b++) {
        uint32_t count = ends[b];
        ends[b] = before;
        before += count;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t at = ends[buckets[i] >> shift & mask]++;
        to_buckets[at] = buckets[i];
        to_rows[at] = rows[i];
    }
}

/* What making lists needs on the way. */
typedef struct { uint32_t buckets[2][LSQ_SPAN], ends[1 << LSQ_DIRECTORY_BITS]; uint16_t rows[2][LSQ_SPAN]; } lsq_list_work;

/* The payload of one table for the `n` rows of work->buckets[0] and work->rows[0]. */
static void lsq_list_build(lsq_list_work *work, int64_t n, int bits, uint8_t *out) {
    int d = lsq_directory_bits(bits), rest = bits - d, from = 0;
    if (rest) {
        lsq_counting_sort(work->buckets[0], work->rows[0], n, 0, rest, work->ends, work->buckets[1], work->rows[1]);
        from = 1;
    }
    lsq_counting_sort(work->buckets[from], work->rows[from], n, rest, d, work->ends, work->buckets[!from], work->rows[!from]);
    /* By now each end is where its bin ends. */
    uint16_t start = 0;
    memcpy(out, &start, 2);
    for (int64_t bin = 0; bin < lsq_bins(bits); bin++) {
        start = (uint16_t)work->ends[bin];
        memcpy(out + 2 * (bin + 1), &start, 2);
    }
    uint8_t *rows = out + 2 * (lsq_bins(bits) + 1);
    memcpy(rows, work->rows[!from], (size_t)(2 * n));
    for (int64_t i = 0; rest && i < n; i++) rows[2 * n + i] = (uint8_t)(work->buckets[!from][i] & ((1u << rest) - 1));
}

/* Whether a payload is such as lsq_list_build makes for a block of `span` rows. */
static int lsq_list_sound(const uint8_t *list, int64_t size, int bits, uint32_t count, uint32_t span) {
    if (bits < 1 || bits > LSQ_TABLE_BITS || count > span || span > LSQ_SPAN || size != lsq_list_size(bits, count)) return 0;
    const uint8_t *rows = lsq_list_rows(list, bits), *low = bits > LSQ_DIRECTORY_BITS ? rows + 2 * (int64_t)count : 0;
    uint32_t limit = bits > LSQ_DIRECTORY_BITS ? 1u << (bits - LSQ_DIRECTORY_BITS) : 1;
    uint64_t seen[(LSQ_SPAN + 63) / 64] = {0};
    if (lsq_list_start(list, 0) != 0 || lsq_list_start(list, lsq_bins(bits)) != count) return 0;
    for (int64_t bin = 0; bin < lsq_bins(bits); bin++) {
        uint32_t from = lsq_list_start(list, bin), to = lsq_list_start(list, bin + 1);
        if (from > to || to > count) return 0;
        for (uint32_t i = from; i < to; i++) {
            uint32_t row = lsq_load16(rows + 2 * (int64_t)i), lower = low ? low[i] : 0;
            if (row >= span || lower >= limit || seen[row >> 6] >> (row & 63) & 1) return 0;
            seen[row >> 6] |= (uint64_t)1 << (row & 63);
            if (i == from) continue;
            uint32_t earlier = low ? low[i - 1] : 0;
            if (lower < earlier || (lower == earlier && row <= lsq_load16(rows + 2 * (int64_t)(i - 1)))) return 0;
        }
    }
    return 1;
}

#endif

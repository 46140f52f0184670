/* Codes where they lie, which of their rows may be found, and exact distances of rows. */
#ifndef LSQ_CODES_H
#define LSQ_CODES_H

#include "nibbles.h"
#include "rows.h"

/* ---- rows that may be found ------------------------------------------------------------------------------------ */

/* Deleted rows: a bit each, by segments; NULL where a segment has none. Allowed rows: a bit each, or NULL for all. */
typedef struct {
    const uint8_t *const *deleted;
    int64_t segments;
    uint32_t segment_rows;
    const uint8_t *allowed;
    int64_t allowed_rows;
} lsq_filter;

LSQ_INLINE int lsq_may(const lsq_filter *filter, uint32_t row) {
    if (filter->segments) {
        int64_t segment = row / filter->segment_rows;
        uint32_t at = row % filter->segment_rows;
        if (segment < filter->segments && filter->deleted[segment] && filter->deleted[segment][at >> 3] >> (at & 7) & 1) return 0;
    }
    return !filter->allowed || (row < filter->allowed_rows && filter->allowed[row >> 3] >> (row & 7) & 1);
}

/* ---- codes where they lie ---------------------------------------------------------------------------------------- */

typedef struct {
    lsq_column column;
    int64_t width, head;
    lsq_fields fields;
    lsq_filter filter;
} lsq_codes;

/* The columns of a block: the first `heads` from `head` on, the others from `tail` on. The columns of the next block
 * follow each of them. */
typedef struct { const uint8_t *head, *tail; int64_t heads, tails; } lsq_block;

LSQ_INLINE const uint8_t *lsq_block_column(const lsq_block *block, int64_t j) {
    return j < block->heads ? block->head + j * LSQ_BLOCK_ROWS : block->tail + (j - block->heads) * LSQ_BLOCK_ROWS;
}

LSQ_INLINE lsq_block lsq_block_at(const lsq_codes *codes, int64_t record, uint64_t at) {
    const uint8_t *payload = (const uint8_t *)(uintptr_t)codes->column.addresses[record];
    uint64_t blocks = (lsq_rows_in(payload) + LSQ_BLOCK_ROWS - 1) / LSQ_BLOCK_ROWS;
    uint64_t head = (uint64_t)codes->head, rest = (uint64_t)(codes->width - codes->head);
    lsq_block block = {payload + at * LSQ_BLOCK_ROWS * head, payload + (blocks * head + at * rest) * LSQ_BLOCK_ROWS,
                       codes->head, (int64_t)rest};
    return block;
}

/* Pairs of columns; those of the head come first. */
LSQ_INLINE int64_t lsq_head_pairs(const lsq_codes *codes) { return (codes->head + 1) / 2; }
/* And after those of the tail the upper bytes of wide ones. */
LSQ_INLINE int64_t lsq_own_pairs(const lsq_codes *codes) { return lsq_head_pairs(codes) + (codes->width - codes->head + 1) / 2; }
LSQ_INLINE int64_t lsq_pairs(const lsq_codes *codes) { return lsq_own_pairs(codes) + LSQ_WIDE_COLUMNS / 2; }

/* The exact distance of one row of a block, by nibbles: four sums side by side, which is no slower than one is long. And
 * the part of its head. */
LSQ_INLINE float lsq_nibble_distance(const lsq_block *block, int lane, const float *exact, float bias, float *head) {
    float sums[4] = {0, 0, 0, 0};
    for (int64_t j = 0; j < block->heads + block->tails; j++, exact += LSQ_LOOKUPS) {
        uint8_t code = lsq_block_column(block, j)[lane];
        if (j == block->heads) *head = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        sums[(j & 1) * 2] += exact[code & 15];
        sums[(j & 1) * 2 + 1] += exact[16 + (code >> 4)];
    }
    return bias + ((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* The distance of every row of a block, field after field. */
LSQ_INLINE void lsq_field_distances_body(const lsq_block *block, const lsq_fields *fields, const float *values, float bias, float *out) {
    int64_t columns = block->heads + block->tails;
    for (int r = 0; r < LSQ_BLOCK_ROWS; r++) out[r] = bias;
    for (int64_t f = 0; f < fields->count; f++) {
        int64_t bit = fields->bits[f], shift = bit & 7, first = bit >> 3, width = fields->bits[f + 1] - bit;
        uint32_t mask = (1u << width) - 1, top = (uint32_t)fields->levels[f] - 1;
        const float *table = values + fields->starts[f];
        const uint8_t *a = lsq_block_column(block, first);
        if (shift + width <= 8) {
            for (int r = 0; r < LSQ_BLOCK_ROWS; r++) {
                uint32_t number = (uint32_t)a[r] >> shift & mask;
                out[r] += table[number < top ? number : top];
            }
            continue;
        }
        const uint8_t *b = lsq_block_column(block, first + 1);
        const uint8_t *c = first + 2 < columns ? lsq_block_column(block, first + 2) : b;
        for (int r = 0; r < LSQ_BLOCK_ROWS; r++) {
            uint32_t number = ((uint32_t)a[r] | (uint32_t)b[r] << 8 | (uint32_t)c[r] << 16) >> shift & mask;
            out[r] += table[number < top ? number : top];
        }
    }
}
LSQ_BODIES(lsq_field_distances,
           (const lsq_block *block, const lsq_fields *fields, const float *values, float bias, float *out),
           (block, fields, values, bias, out))

/* Where a row is: its block, and which of its rows. */
typedef struct { lsq_block block; int lane; } lsq_place;

/* Rows are anywhere, and each has a byte in every line of its block: so a row is looked up and its block asked for so many
 * rows before it is summed. */
enum { LSQ_PLACES_AHEAD = 4 };

LSQ_INLINE int lsq_find_place(const lsq_codes *codes, uint32_t row, lsq_place *place) {
    int64_t record = lsq_record(&codes->column, row);
    if (record < 0) return 0;
    uint32_t at = row - codes->column.starts[record];
    place->block = lsq_block_at(codes, record, at / LSQ_BLOCK_ROWS);
    place->lane = (int)(at % LSQ_BLOCK_ROWS);
#if defined(__GNUC__) || defined(__clang__)
    for (int64_t i = 0; i < place->block.heads; i += 2) __builtin_prefetch(place->block.head + i * LSQ_BLOCK_ROWS);
    for (int64_t i = 0; i < place->block.tails; i += 2) __builtin_prefetch(place->block.tail + i * LSQ_BLOCK_ROWS);
#endif
    return 1;
}

/* The exact distances of some rows to one query; 0 where a row is not there. `work`: look-ups by nibble. */
static int lsq_distances(int level, const lsq_codes *codes, int nibbles, const float *values, float bias, const uint32_t *rows,
                         int64_t n, float *work, float *out) {
    lsq_place places[LSQ_PLACES_AHEAD];
    if (nibbles) lsq_nibble_tables(values, &codes->fields, codes->width, work, &bias);
    for (int64_t i = 0; i < n + LSQ_PLACES_AHEAD; i++) {
        lsq_place *place = places + i % LSQ_PLACES_AHEAD;
        if (i >= LSQ_PLACES_AHEAD) {
            float head = 0, all[LSQ_BLOCK_ROWS], *to = out + i - LSQ_PLACES_AHEAD;
            if (nibbles) *to = lsq_nibble_distance(&place->block, place->lane, work, bias, &head);
            else {
                lsq_field_distances(level, &place->block, &codes->fields, values, bias, all);
                *to = all[place->lane];
            }
        }
        if (i < n && !lsq_find_place(codes, rows[i], place)) return 0;
    }
    return 1;
}

#endif

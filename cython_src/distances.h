/* Distances of codes: sums of look-ups in float32, in an order that is the same on every instruction set. */
#ifndef LSQ_DISTANCES_H
#define LSQ_DISTANCES_H

#include "codes.h"
#include "nibbles.h"
#include "simd.h"

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
static inline int lsq_distances(int level, const lsq_codes *codes, int nibbles, const float *values, float bias, const uint32_t *rows,
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

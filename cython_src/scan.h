/* The scan: the k nearest of all codes, without reading a distance out of every row.

   A distance is a sum of look-ups, one per nibble of the code. Quantized to 7 bits and rounded down, the tables fit
   a byte shuffle, 32 rows at once, and the sum is a lower bound:

       distance(row) >= base + step * (sum of quantized look-ups)

   so a row whose sum is above a limit cannot be among the k nearest. The few that pass are evaluated exactly, in
   float32, nibble after nibble: the same bits on every instruction set. Codes whose fields do not fit nibbles
   (pq with 8 bits, say) are summed field after field instead, all of them exactly.

   Codes lie in blocks of 32 rows by column (rows.h). Two look-ups of at most 127 fit a byte; sums are kept in 16 bits,
   those of odd rows beside those of all, which are 256 * odd + even: one shift and two additions a column. */
#ifndef LSQ_SCAN_H
#define LSQ_SCAN_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"
#include "simd.h"

#if LSQ_X86
#include <immintrin.h>
#elif LSQ_ARM64
#include <arm_neon.h>
#endif

enum { LSQ_GROUP = 4, LSQ_TABLE = 32, LSQ_QUANTUM = 127 };

/* ---- candidates ------------------------------------------------------------------------------------------------ */

typedef struct { float distance; uint32_t row; } lsq_candidate;

/* The nearest rows of one query so far: all that are not farther than the k-th. */
typedef struct {
    lsq_candidate *items;
    int64_t count, capacity, k;
    float worst;    /* the k-th smallest distance; infinite until there are k */
    uint16_t limit; /* `worst` as a quantized sum */
    double base, step;
    double slack; /* what rounding of float32 sums may be, in steps */
    const float *exact; /* look-ups: (columns, 2, 16) by nibble, or by field */
    float bias;
} lsq_query;

static void lsq_set_limit(lsq_query *query) {
    double sum = (query->worst - query->base) / query->step + query->slack;
    /* Never negative; not a number where look-ups are infinite: then all rows are evaluated. */
    query->limit = sum >= 0 && sum < 65535 ? (uint16_t)sum : 65535;
}

static float lsq_kth(const lsq_candidate *items, int64_t count, int64_t k, float *work) {
    for (int64_t i = 0; i < count; i++) work[i] = items[i].distance;
    int64_t low = 0, high = count - 1, at = k - 1;
    while (low < high) {
        float pivot = work[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (work[i] < pivot) i++;
            while (work[j] > pivot) j--;
            if (i <= j) { float t = work[i]; work[i++] = work[j]; work[j--] = t; }
        }
        if (at <= j) high = j; else if (at >= i) low = i; else break;
    }
    return work[at];
}

/* Keep what is not farther than the k-th nearest, and room for more; 0 without memory. */
static int lsq_prune(lsq_query *query) {
    if (query->count >= query->k) {
        float *work = (float *)malloc((size_t)query->count * sizeof(float));
        if (!work) return 0;
        query->worst = lsq_kth(query->items, query->count, query->k, work);
        free(work);
        int64_t kept = 0;
        for (int64_t i = 0; i < query->count; i++)
            if (query->items[i].distance <= query->worst) query->items[kept++] = query->items[i];
        query->count = kept;
        lsq_set_limit(query);
    }
    if (query->count * 2 > query->capacity) { /* many are equally far */
        int64_t capacity = query->capacity * 2;
        lsq_candidate *items = (lsq_candidate *)realloc(query->items, (size_t)capacity * sizeof(lsq_candidate));
        if (!items) return 0;
        query->items = items;
        query->capacity = capacity;
    }
    return 1;
}

LSQ_INLINE int lsq_offer(lsq_query *query, uint32_t row, float distance) {
    if (!(distance <= query->worst)) return 1;
    query->items[query->count].distance = distance;
    query->items[query->count++].row = row;
    return query->count < query->capacity || lsq_prune(query);
}

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
    int64_t segment = row / filter->segment_rows;
    if (segment < filter->segments && filter->deleted[segment]) {
        uint32_t at = row % filter->segment_rows;
        if (filter->deleted[segment][at >> 3] >> (at & 7) & 1) return 0;
    }
    return !filter->allowed || (row < filter->allowed_rows && filter->allowed[row >> 3] >> (row & 7) & 1);
}

/* ---- one block by nibbles: which of its rows may be near enough -------------------------------------------------- */

/* The columns of a block: the first `heads` from `head` on, the others from `tail` on. */
typedef struct { const uint8_t *head, *tail; int64_t heads, tails; } lsq_block;

LSQ_INLINE const uint8_t *lsq_block_column(const lsq_block *block, int64_t j) {
    return j < block->heads ? block->head + j * LSQ_BLOCK_ROWS : block->tail + (j - block->heads) * LSQ_BLOCK_ROWS;
}

/* tables: for each column and query 16 bytes for the low nibble and 16 for the high one. */
static void lsq_masks_portable(const lsq_block *block, const uint8_t *tables, int nq, const uint16_t *limits, uint32_t *masks) {
    for (int q = 0; q < nq; q++) {
        uint16_t sums[LSQ_BLOCK_ROWS] = {0};
        for (int64_t j = 0; j < block->heads + block->tails; j++) {
            const uint8_t *code = lsq_block_column(block, j), *table = tables + (j * nq + q) * LSQ_TABLE;
            for (int r = 0; r < LSQ_BLOCK_ROWS; r++) sums[r] += (uint16_t)(table[code[r] & 15] + table[16 + (code[r] >> 4)]);
        }
        masks[q] = 0;
        for (int r = 0; r < LSQ_BLOCK_ROWS; r++) masks[q] |= (uint32_t)(sums[r] <= limits[q]) << r;
    }
}

#if LSQ_X86
#define LSQ_COLUMNS_AVX2(codes, count)                                                                                 \
    for (int64_t j = 0; j < (count); j++, tables += NQ * LSQ_TABLE) {                                                  \
        __m256i code = _mm256_loadu_si256((const __m256i *)((codes) + j * LSQ_BLOCK_ROWS));                             \
        __m256i low = _mm256_and_si256(code, nibble), high = _mm256_and_si256(_mm256_srli_epi16(code, 4), nibble);       \
        for (int q = 0; q < NQ; q++) {                                                                                 \
            const __m128i *table = (const __m128i *)(tables + q * LSQ_TABLE);                                          \
            __m256i first = _mm256_broadcastsi128_si256(_mm_loadu_si128(table));                                        \
            __m256i second = _mm256_broadcastsi128_si256(_mm_loadu_si128(table + 1));                                   \
            __m256i sum = _mm256_add_epi8(_mm256_shuffle_epi8(first, low), _mm256_shuffle_epi8(second, high));          \
            both[q] = _mm256_add_epi16(both[q], sum);                                                                  \
            odd[q] = _mm256_add_epi16(odd[q], _mm256_srli_epi16(sum, 8));                                              \
        }                                                                                                              \
    }
#define LSQ_MASKS_AVX2(NQ_)                                                                                            \
    LSQ_TARGET_AVX2 static void lsq_masks_avx2_##NQ_(const lsq_block *block, const uint8_t *tables,                     \
                                                     const uint16_t *limits, uint32_t *masks) {                        \
        enum { NQ = NQ_ };                                                                                             \
        const __m256i nibble = _mm256_set1_epi8(15), low_byte = _mm256_set1_epi16(255);                                 \
        __m256i both[NQ], odd[NQ];                                                                                     \
        for (int q = 0; q < NQ; q++) both[q] = odd[q] = _mm256_setzero_si256();                                         \
        LSQ_COLUMNS_AVX2(block->head, block->heads)                                                                    \
        LSQ_COLUMNS_AVX2(block->tail, block->tails)                                                                    \
        for (int q = 0; q < NQ; q++) {                                                                                 \
            __m256i limit = _mm256_set1_epi16((short)limits[q]);                                                       \
            __m256i even = _mm256_sub_epi16(both[q], _mm256_slli_epi16(odd[q], 8));                                    \
            __m256i near_even = _mm256_cmpeq_epi16(_mm256_min_epu16(even, limit), even);                               \
            __m256i near_odd = _mm256_cmpeq_epi16(_mm256_min_epu16(odd[q], limit), odd[q]);                            \
            masks[q] = (uint32_t)_mm256_movemask_epi8(_mm256_blendv_epi8(near_odd, near_even, low_byte));              \
        }                                                                                                              \
    }
LSQ_MASKS_AVX2(1)
LSQ_MASKS_AVX2(2)
LSQ_MASKS_AVX2(3)
LSQ_MASKS_AVX2(4)
#elif LSQ_ARM64
static void lsq_masks_neon(const lsq_block *block, const uint8_t *tables, int nq, const uint16_t *limits, uint32_t *masks) {
    const uint8x16_t nibble = vdupq_n_u8(15);
    for (int q = 0; q < nq; q++) {
        uint16x8_t sums[4] = {vdupq_n_u16(0), vdupq_n_u16(0), vdupq_n_u16(0), vdupq_n_u16(0)};
        for (int64_t j = 0; j < block->heads + block->tails; j++) {
            const uint8_t *code = lsq_block_column(block, j), *table = tables + (j * nq + q) * LSQ_TABLE;
            uint8x16_t first = vld1q_u8(table), second = vld1q_u8(table + 16);
            for (int half = 0; half < 2; half++) {
                uint8x16_t c = vld1q_u8(code + 16 * half);
                uint8x16_t sum = vaddq_u8(vqtbl1q_u8(first, vandq_u8(c, nibble)), vqtbl1q_u8(second, vshrq_n_u8(c, 4)));
                sums[2 * half] = vaddw_u8(sums[2 * half], vget_low_u8(sum));
                sums[2 * half + 1] = vaddw_u8(sums[2 * half + 1], vget_high_u8(sum));
            }
        }
        uint16_t all[LSQ_BLOCK_ROWS];
        for (int i = 0; i < 4; i++) vst1q_u16(all + 8 * i, sums[i]);
        masks[q] = 0;
        for (int r = 0; r < LSQ_BLOCK_ROWS; r++) masks[q] |= (uint32_t)(all[r] <= limits[q]) << r;
    }
}
#endif

LSQ_INLINE void lsq_masks(int level, const lsq_block *block, const uint8_t *tables, int nq, const uint16_t *limits, uint32_t *masks) {
#if LSQ_X86
    if (level != LSQ_PORTABLE) {
        switch (nq) {
        case 1: lsq_masks_avx2_1(block, tables, limits, masks); return;
        case 2: lsq_masks_avx2_2(block, tables, limits, masks); return;
        case 3: lsq_masks_avx2_3(block, tables, limits, masks); return;
        default: lsq_masks_avx2_4(block, tables, limits, masks); return;
        }
    }
#elif LSQ_ARM64
    if (level == LSQ_NEON) { lsq_masks_neon(block, tables, nq, limits, masks); return; }
#endif
    lsq_masks_portable(block, tables, nq, limits, masks);
}

/* The exact distance of one row of a block, by nibbles: four sums side by side, which is no slower than one is long. */
LSQ_INLINE float lsq_nibble_distance(const lsq_block *block, int lane, const lsq_query *query) {
    float sums[4] = {0, 0, 0, 0};
    const float *table = query->exact;
    for (int64_t j = 0; j < block->heads + block->tails; j++, table += LSQ_TABLE) {
        uint8_t code = lsq_block_column(block, j)[lane];
        sums[(j & 1) * 2] += table[code & 15];
        sums[(j & 1) * 2 + 1] += table[16 + (code >> 4)];
    }
    return query->bias + ((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/* ---- one block by fields: the distance of every row --------------------------------------------------------------- */

typedef struct {
    int64_t count;
    const int64_t *starts; /* of each field's look-ups */
    const int64_t *bits;   /* where each field begins in the row, and its end at [count] */
    const int64_t *levels;
} lsq_fields;

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

/* ---- all records -------------------------------------------------------------------------------------------------- */

typedef struct {
    const lsq_column *column;
    int64_t width, head;
    const lsq_fields *fields; /* NULL: by nibbles */
    const lsq_filter *filter;
} lsq_codes;

LSQ_INLINE lsq_block lsq_block_at(const lsq_codes *codes, const uint8_t *payload, uint64_t blocks, uint64_t at) {
    uint64_t head = (uint64_t)codes->head, rest = (uint64_t)(codes->width - codes->head);
    lsq_block block = {payload + at * LSQ_BLOCK_ROWS * head, payload + (blocks * head + at * rest) * LSQ_BLOCK_ROWS,
                       codes->head, (int64_t)rest};
    return block;
}

/* One record for a group of at most LSQ_GROUP queries, whose quantized tables lie side by side; 0 without memory. */
static int lsq_scan_record(int level, const lsq_codes *codes, int64_t record, lsq_query *queries, int nq, const uint8_t *tables) {
    const uint8_t *payload = (const uint8_t *)(uintptr_t)codes->column->addresses[record];
    uint32_t start = codes->column->starts[record], count = codes->column->counts[record];
    uint64_t blocks = (lsq_rows_in(payload) + LSQ_BLOCK_ROWS - 1) / LSQ_BLOCK_ROWS;
    for (uint32_t first = 0; first < count; first += LSQ_BLOCK_ROWS) {
        lsq_block block = lsq_block_at(codes, payload, blocks, first / LSQ_BLOCK_ROWS);
        uint32_t valid = count - first < LSQ_BLOCK_ROWS ? (1u << (count - first)) - 1 : 0xFFFFFFFFu;
        if (codes->fields) {
            for (int q = 0; q < nq; q++) {
                float distances[LSQ_BLOCK_ROWS];
                lsq_field_distances(level, &block, codes->fields, queries[q].exact, queries[q].bias, distances);
                for (int r = 0; r < LSQ_BLOCK_ROWS; r++)
                    if (distances[r] <= queries[q].worst && valid >> r & 1 && lsq_may(codes->filter, start + first + (uint32_t)r) &&
                        !lsq_offer(&queries[q], start + first + (uint32_t)r, distances[r]))
                        return 0;
            }
            continue;
        }
        uint16_t limits[LSQ_GROUP];
        uint32_t masks[LSQ_GROUP];
        for (int q = 0; q < nq; q++) limits[q] = queries[q].limit;
        lsq_masks(level, &block, tables, nq, limits, masks);
        for (int q = 0; q < nq; q++) {
            for (uint32_t mask = masks[q] & valid; mask; mask &= mask - 1) {
                int lane = 0;
                while (!(mask >> lane & 1)) lane++;
                uint32_t row = start + first + (uint32_t)lane;
                if (lsq_may(codes->filter, row) &&
                    !lsq_offer(&queries[q], row, lsq_nibble_distance(&block, lane, &queries[q])))
                    return 0;
            }
        }
    }
    return 1;
}

/* Look-ups by nibble of one query, float32 (columns, 2, 16), from those by field; and what they are quantized to.
 *
 * A field inside a nibble gives its own look-ups. One that lies across is affine in its bits (layout.linear), so each
 * bit gives its weight, and the field's first look-up goes to the bias. */
static void lsq_nibble_tables(const float *values, const lsq_fields *fields, int64_t columns, float *exact, float *bias) {
    memset(exact, 0, (size_t)columns * LSQ_TABLE * sizeof(float));
    for (int64_t f = 0; f < fields->count; f++) {
        int64_t begin = fields->bits[f], end = fields->bits[f + 1];
        const float *table = values + fields->starts[f];
        if (begin / 4 == (end - 1) / 4) {
            float *to = exact + begin / 4 * 16;
            for (int n = 0; n < 16; n++) {
                int64_t number = n >> (begin & 3) & ((1 << (end - begin)) - 1);
                to[n] += table[number < fields->levels[f] ? number : fields->levels[f] - 1];
            }
            continue;
        }
        *bias += table[0];
        for (int64_t bit = begin; bit < end; bit++) {
            float weight = table[(int64_t)1 << (bit - begin)] - table[0];
            float *to = exact + bit / 4 * 16;
            for (int n = 0; n < 16; n++)
                if (n >> (bit & 3) & 1) to[n] += weight;
        }
    }
}

/* Round the look-ups of one query down to bytes, written for each column `stride` bytes apart. */
static void lsq_quantize(lsq_query *query, int64_t columns, uint8_t *out, int64_t stride) {
    double step = 0, base = query->bias, size = fabs(base);
    int64_t nibbles = 2 * columns, top = 65535 / (nibbles ? nibbles : 1);
    if (top > LSQ_QUANTUM) top = LSQ_QUANTUM;
    for (int64_t i = 0; i < nibbles; i++) {
        float low = query->exact[i * 16], high = low;
        for (int n = 1; n < 16; n++) {
            float value = query->exact[i * 16 + n];
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
        base += low;
        size += fabs(low) > fabs(high) ? fabs(low) : fabs(high);
        if ((double)high - low > step) step = (double)high - low;
    }
    query->base = base;
    query->step = step > 0 ? step / (double)top : 1;
    /* A distance is fewer than columns + 4 additions one after another, each rounded by half an epsilon at most of what
     * all look-ups may come to; one more step for rounding here. */
    query->slack = 1 + (double)(columns + 4) * FLT_EPSILON * size / query->step;
    for (int64_t i = 0; i < nibbles; i++) {
        float low = query->exact[i * 16];
        for (int n = 1; n < 16; n++) low = query->exact[i * 16 + n] < low ? query->exact[i * 16 + n] : low;
        for (int n = 0; n < 16; n++) {
            double value = ((double)query->exact[i * 16 + n] - low) / query->step;
            out[i / 2 * stride + (i & 1) * 16 + n] = (uint8_t)(value < (double)top ? value : (double)top);
        }
    }
    lsq_set_limit(query);
}

#endif

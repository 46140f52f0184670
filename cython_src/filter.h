/* Which rows may be found: those that are not deleted, and, where a search is filtered, are allowed. */
#ifndef LSQ_FILTER_H
#define LSQ_FILTER_H

#include <stdint.h>

#include "simd.h"

/* Deleted rows: a bit each, by segments; NULL where a segment has none. Allowed rows: a bit each, or NULL for all. */
typedef struct {
    const uint8_t *const *deleted;
    int64_t segments;
    uint32_t segment_rows;
    const uint8_t *allowed;
    int64_t allowed_rows;
} lsq_filter;

LSQ_INLINE int lsq_allowed(const lsq_filter *filter, uint32_t row) {
    return !filter->allowed || (row < filter->allowed_rows && filter->allowed[row >> 3] >> (row & 7) & 1);
}

LSQ_INLINE int lsq_may(const lsq_filter *filter, uint32_t row) {
    if (filter->segments) {
        int64_t segment = row / filter->segment_rows;
        uint32_t at = row % filter->segment_rows;
        if (segment < filter->segments && filter->deleted[segment] && filter->deleted[segment][at >> 3] >> (at & 7) & 1) return 0;
    }
    return lsq_allowed(filter, row);
}

#endif

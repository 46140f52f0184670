/* Codes where they lie, and which of their rows may be found. */
#ifndef LSQ_CODES_H
#define LSQ_CODES_H

#include "column.h"
#include "fields.h"
#include "filter.h"

typedef struct {
    lsq_column column;
    int64_t width, head;
    lsq_fields fields;
    lsq_filter filter;
} lsq_codes;

LSQ_INLINE lsq_block lsq_block_at(const lsq_codes *codes, int64_t record, uint64_t at) {
    return lsq_block_in(lsq_payload(&codes->column, record), codes->width, codes->head, at);
}

#endif

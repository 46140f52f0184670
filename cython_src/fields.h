/* The fields of a code: which bits each has, and where its look-ups are. */
#ifndef LSQ_FIELDS_H
#define LSQ_FIELDS_H

#include <stdint.h>

/* See encoders/layout.py. */
typedef struct {
    int64_t count;
    const int64_t *starts; /* of each field's look-ups */
    const int64_t *bits;   /* where each field begins in the row, and its end at [count] */
    const int64_t *levels;
} lsq_fields;

#endif

/* Ids found by halves, among rows that are sorted by their ids. */
#ifndef LSQ_FIND_H
#define LSQ_FIND_H

#include "gather.h"

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

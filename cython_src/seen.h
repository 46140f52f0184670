/* Rows that were met before: a hash table that grows. */
#ifndef LSQ_SEEN_H
#define LSQ_SEEN_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* LSQ_NOBODY is not the number of a row. LSQ_SEEN_ROOM: places at first, a power of two. */
#define LSQ_NOBODY 0xFFFFFFFFu
enum { LSQ_SEEN_ROOM = 2048 };

typedef struct {
    uint32_t *rows;
    int64_t room, count;
} lsq_seen;

static void lsq_seen_free(lsq_seen *seen) { free(seen->rows); }

static int lsq_seen_init(lsq_seen *seen) {
    seen->count = 0;
    seen->room = LSQ_SEEN_ROOM;
    seen->rows = (uint32_t *)malloc(LSQ_SEEN_ROOM * sizeof(uint32_t));
    return seen->rows != NULL;
}

/* Forget all rows. (Only as many places are used again as at first: most queries meet few.) */
static void lsq_seen_clear(lsq_seen *seen) {
    seen->room = LSQ_SEEN_ROOM;
    seen->count = 0;
    memset(seen->rows, 0xFF, LSQ_SEEN_ROOM * sizeof(uint32_t));
}

static int lsq_seen_put(lsq_seen *seen, uint32_t row) {
    const uint32_t mask = (uint32_t)seen->room - 1;
    uint32_t at = (row * 2654435761u >> 7) & mask;
    for (; seen->rows[at] != LSQ_NOBODY; at = (at + 1) & mask)
        if (seen->rows[at] == row) return 0;
    seen->rows[at] = row;
    seen->count++;
    return 1;
}

/* Add a row: 1 if it is new, 0 if it was met before, -1 without memory. */
static int lsq_seen_add(lsq_seen *seen, uint32_t row) {
    if (2 * seen->count >= seen->room) {
        const int64_t room = 2 * seen->room;
        uint32_t *old = seen->rows, *rows = (uint32_t *)malloc((size_t)room * sizeof(uint32_t));
        if (!rows) return -1;
        memset(rows, 0xFF, (size_t)room * sizeof(uint32_t));
        seen->rows = rows;
        seen->room = room;
        seen->count = 0;
        for (int64_t i = 0; i < room / 2; i++)
            if (old[i] != LSQ_NOBODY) lsq_seen_put(seen, old[i]);
        free(old);
    }
    return lsq_seen_put(seen, row);
}

#endif

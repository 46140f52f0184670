/* Whether a record of codes is what it should be; see _storage/format/records.py. */
#ifndef LSQ_VERIFY_H
#define LSQ_VERIFY_H

#include <string.h>

#include "checksum.h"
#include "column.h"

/* Whether a record of full blocks of codes is what it should be: its header field by field, and its checksum. */
static int lsq_record_sound(const uint8_t *payload, uint64_t first, uint32_t count, uint8_t kind, uint32_t width,
                            uint32_t generation, uint32_t head) {
    const uint8_t *h = payload - LSQ_HEADER;
    uint64_t size = (uint64_t)((count + LSQ_BLOCK_ROWS - 1) / LSQ_BLOCK_ROWS) * LSQ_BLOCK_ROWS * width;
    return memcmp(h, "LSQ", 3) == 0 && h[3] == kind && lsq_load32(h + 4) == count && lsq_load64(h + 8) == first &&
           lsq_load32(h + 16) == width && lsq_load32(h + 20) == generation && lsq_load64(h + 24) == size &&
           lsq_load32(h + 32) == head && lsq_load32(h + 36) == 0 &&
           lsq_load64(h + 40) == lsq_checksum(payload, size, lsq_checksum(h, 40, 0));
}

#endif

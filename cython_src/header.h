/* The header of a record, as it lies in the file: _storage/format/records.py tells what each field is.
   Records may lie anywhere, so the struct is packed; hosts are little-endian. */
#ifndef LSQ_HEADER_H
#define LSQ_HEADER_H

#include <stdint.h>

enum { LSQ_HEADER = 48 }; /* its bytes */

#pragma pack(push, 1)
typedef struct {
    uint8_t magic[3];
    uint8_t kind;
    uint32_t count;
    uint64_t first;
    uint32_t width;
    uint32_t generation;
    uint64_t size;
    uint32_t head;
    uint32_t zero;
    uint64_t checksum;
} lsq_header;
#pragma pack(pop)

#endif

/* Numbers in bytes, at any address. */
#ifndef LSQ_BYTES_H
#define LSQ_BYTES_H

#include <stdint.h>
#include <string.h>

/* The machines we build for are little-endian, as the file is. */
static inline uint64_t lsq_load64(const uint8_t *p) { uint64_t x; memcpy(&x, p, 8); return x; }
static inline uint32_t lsq_load32(const uint8_t *p) { uint32_t x; memcpy(&x, p, 4); return x; }
static inline uint16_t lsq_load16(const uint8_t *p) { uint16_t x; memcpy(&x, p, 2); return x; }

#endif

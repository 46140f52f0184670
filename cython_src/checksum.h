/* XXH64, the 64-bit hash of Yann Collet's xxHash (specification: doc/xxhash_spec.md of that project).
 *
 * It guards every record of an index file: four independent lanes of multiplications keep up with
 * memory on the ABI's floor, so no instruction set needs its own body. A public, frozen algorithm, so
 * that any program can verify a file.
 */
#ifndef LSQ_CHECKSUM_H
#define LSQ_CHECKSUM_H

#include <stdint.h>

#include "bytes.h"

#define LSQ_P1 0x9E3779B185EBCA87ULL
#define LSQ_P2 0xC2B2AE3D27D4EB4FULL
#define LSQ_P3 0x165667B19E3779F9ULL
#define LSQ_P4 0x85EBCA77C2B2AE63ULL
#define LSQ_P5 0x27D4EB2F165667C5ULL

static inline uint64_t lsq_rotate(uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

static inline uint64_t lsq_round(uint64_t lane, uint64_t input) {
    return lsq_rotate(lane + input * LSQ_P2, 31) * LSQ_P1;
}

static inline uint64_t lsq_merge(uint64_t hash, uint64_t lane) {
    return (hash ^ lsq_round(0, lane)) * LSQ_P1 + LSQ_P4;
}

static uint64_t lsq_checksum(const uint8_t *p, uint64_t size, uint64_t seed) {
    const uint8_t *end = p + size;
    uint64_t hash;
    if (size >= 32) {
        uint64_t a = seed + LSQ_P1 + LSQ_P2, b = seed + LSQ_P2, c = seed, d = seed - LSQ_P1;
        for (; end - p >= 32; p += 32) {
            a = lsq_round(a, lsq_load64(p));
            b = lsq_round(b, lsq_load64(p + 8));
            c = lsq_round(c, lsq_load64(p + 16));
            d = lsq_round(d, lsq_load64(p + 24));
        }
        hash = lsq_rotate(a, 1) + lsq_rotate(b, 7) + lsq_rotate(c, 12) + lsq_rotate(d, 18);
        hash = lsq_merge(lsq_merge(lsq_merge(lsq_merge(hash, a), b), c), d);
    } else {
        hash = seed + LSQ_P5;
    }
    hash += size;
    for (; end - p >= 8; p += 8) hash = lsq_rotate(hash ^ lsq_round(0, lsq_load64(p)), 27) * LSQ_P1 + LSQ_P4;
    if (end - p >= 4) {
        hash = lsq_rotate(hash ^ lsq_load32(p) * LSQ_P1, 23) * LSQ_P2 + LSQ_P3;
        p += 4;
    }
    for (; p < end; p++) hash = lsq_rotate(hash ^ *p * LSQ_P5, 11) * LSQ_P1;
    hash = (hash ^ hash >> 33) * LSQ_P2;
    hash = (hash ^ hash >> 29) * LSQ_P3;
    return hash ^ hash >> 32;
}

#endif

/* A plain read of memory: the sum of all 64-bit words, in sixteen sums that do not wait for one another. */

#include <stdint.h>

uint64_t plain_read(const uint64_t *addresses, const uint64_t *words, uint64_t pieces)
{
    uint64_t sums[16] = {0}, total = 0;
    for (uint64_t piece = 0; piece < pieces; piece++) {
        const uint64_t *from = (const uint64_t *)(uintptr_t)addresses[piece];
        uint64_t i = 0;
        for (; i + 16 <= words[piece]; i += 16)
            for (int j = 0; j < 16; j++)
                sums[j] += from[i + j];
        for (; i < words[piece]; i++)
            total += from[i];
    }
    for (int j = 0; j < 16; j++)
        total += sums[j];
    return total;
}

/* What adding up scores costs and nothing else: one to the byte of each row. */

#include <stdint.h>

void bare_loop(const uint16_t *rows, uint64_t count, uint8_t *scores)
{
    for (uint64_t i = 0; i < count; i++)
        scores[rows[i]]++;
}

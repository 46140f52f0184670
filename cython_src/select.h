/* The k-th smallest of some values, without sorting them. */
#ifndef LSQ_SELECT_H
#define LSQ_SELECT_H

#include <stdint.h>

#define LSQ_SELECT(name, type)                                                                                         \
    /* The k-th smallest of `count` values, which change places. */                                                    \
    static type name(type *values, int64_t count, int64_t k) {                                                         \
        int64_t low = 0, high = count - 1, at = k - 1;                                                                 \
        uint64_t random = 1; /* a pivot in a fixed place would make some orders of rows take quadratic time */        \
        while (low < high) {                                                                                           \
            random = random * 6364136223846793005u + 1442695040888963407u;                                             \
            type pivot = values[low + (int64_t)((random >> 33) % (uint64_t)(high - low + 1))];                         \
            int64_t i = low, j = high;                                                                                 \
            while (i <= j) {                                                                                           \
                while (values[i] < pivot) i++;                                                                         \
                while (values[j] > pivot) j--;                                                                         \
                if (i <= j) { type t = values[i]; values[i++] = values[j]; values[j--] = t; }                          \
            }                                                                                                          \
            if (at <= j) high = j; else if (at >= i) low = i; else break;                                              \
        }                                                                                                              \
        return values[at];                                                                                             \
    }

#endif

/* How many of the rows that were not compared exactly are expected to be nearer than the k-th nearest found.

   A search compares the n rows of smallest estimated distance x exactly, and gets distances y. Over these rows y is
   modelled as a line in x plus a normal error:

       y = mean(y) + b (x - mean(x)) + error,   error of standard deviation s

   b is one standard error below the least-squares slope, and never negative: a flatter line expects more misses. The
   rows not compared follow in octaves: n rows, then 2 n, 4 n, …, up to the last row. From one octave to the next x grows
   as it grew over the last octave compared. A row at x is nearer than the k-th nearest, at distance y_k, with
   probability

       Φ((y_k - mean(y) - b (x - mean(x))) / s)

   and the result is the sum of these. All in double, in the order of the rows, so that its twin gives the same
   bits. */
#ifndef LSQ_MISSES_H
#define LSQ_MISSES_H

#include <math.h>
#include <stdint.h>

/* x: estimates, ascending; y: exact distances of the same n >= 3 rows; kth: the k-th smallest y; total: rows in all. */
static double lsq_expected_misses(const float *x, const float *y, int64_t n, double kth, int64_t total) {
    double mean_x = 0, mean_y = 0, xx = 0, xy = 0, rest = 0, misses = 0;
    for (int64_t i = 0; i < n; i++) mean_x += x[i], mean_y += y[i];
    mean_x /= (double)n, mean_y /= (double)n;
    for (int64_t i = 0; i < n; i++) {
        double dx = x[i] - mean_x, dy = y[i] - mean_y;
        xx += dx * dx, xy += dx * dy;
    }
    double slope = xx > 0 ? xy / xx : 0;
    for (int64_t i = 0; i < n; i++) {
        double error = y[i] - mean_y - slope * (x[i] - mean_x);
        rest += error * error;
    }
    double s = sqrt(rest / (double)(n - 2));
    slope = xx > 0 ? slope - s / sqrt(xx) : 0;
    if (!(slope > 0)) slope = 0;
    double octave = (double)x[n - 1] - x[n / 2 - 1], ahead = x[n - 1] + octave / 2;
    for (double rows = (double)n, left = (double)(total - n); left > 0; rows *= 2, ahead += octave) {
        double share = rows < left ? rows : left, z = kth - mean_y - slope * (ahead - mean_x);
        /* Without any error a row is nearer or it is not. */
        misses += share * (s > 0 ? 0.5 * erfc(-z / (s * 1.4142135623730951)) : z > 0 ? 1.0 : 0.0);
        left -= share;
    }
    return misses;
}

#endif

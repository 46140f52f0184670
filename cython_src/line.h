/* A line through points, and the normal distribution. */
#ifndef LSQ_LINE_H
#define LSQ_LINE_H

#include <math.h>
#include <stdint.h>

/* y = start + slope * x, give or take `around`; the mean of x. */
typedef struct { double start, slope, around, mean; } lsq_line;

/* By least squares. Points above each other have a slope of 0. Fewer than three points tell nothing: `around` is infinite. */
static lsq_line lsq_fit(const float *x, const float *y, int64_t n) {
    double mean_x = 0, mean_y = 0, xx = 0, xy = 0, rest = 0;
    lsq_line line = {0, 0, INFINITY, 0};
    if (n < 3) return line;
    for (int64_t i = 0; i < n; i++) mean_x += x[i], mean_y += y[i];
    mean_x /= (double)n, mean_y /= (double)n;
    for (int64_t i = 0; i < n; i++) {
        xx += (x[i] - mean_x) * (x[i] - mean_x);
        xy += (x[i] - mean_x) * (y[i] - mean_y);
    }
    line.mean = mean_x;
    line.slope = xx > 0 ? xy / xx : 0;
    line.start = mean_y - line.slope * mean_x;
    for (int64_t i = 0; i < n; i++) {
        double error = y[i] - line.start - line.slope * x[i];
        rest += error * error;
    }
    line.around = sqrt(rest / (double)(n - 2));
    return line;
}

/* How much of the normal distribution is above z; and above which z there is p of it, for p up to one half, within 0.0005
 * (Abramowitz and Stegun, 26.2.23). */
static double lsq_normal_tail(double z) { return 0.5 * erfc(z * 0.70710678118654752); }

static double lsq_normal_quantile(double p) {
    if (!(p < 0.5)) return 0;
    double t = sqrt(-2 * log(p));
    return t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

#endif

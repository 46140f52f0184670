/* A line through points, and the normal distribution. */
#ifndef LSQ_LINE_H
#define LSQ_LINE_H

#include <math.h>
#include <stdint.h>

/* y = start + slope * x, give or take `around`; the mean of x. */
typedef struct { double start, slope, around, mean; } lsq_line;

/* Points, by sums of their differences from the first. */
typedef struct { int64_t n; double x0, y0, x, y, xx, xy, yy; } lsq_points;

static void lsq_points_add(lsq_points *all, const float *x, const float *y, int64_t n) {
    if (!all->n && n) all->x0 = x[0], all->y0 = y[0];
    for (int64_t i = 0; i < n; i++) {
        const double dx = x[i] - all->x0, dy = y[i] - all->y0;
        all->x += dx, all->y += dy;
        all->xx += dx * dx, all->xy += dx * dy, all->yy += dy * dy;
    }
    all->n += n;
}

/* The line of least squares, but one standard error flatter: too flat a line expects too much of points far off, and too steep a
 * one too little. Points above each other have a slope of 0. Fewer than three tell nothing: `around` is infinite. */
static lsq_line lsq_line_of(const lsq_points *all) {
    lsq_line line = {0, 0, INFINITY, 0};
    if (all->n < 3) return line;
    const double n = (double)all->n, x = all->x / n, y = all->y / n;
    const double xx = all->xx - all->x * x, xy = all->xy - all->x * y, yy = all->yy - all->y * y;
    line.mean = all->x0 + x;
    line.slope = xx > 0 ? xy / xx : 0;
    const double rest = yy - line.slope * xy;
    line.around = rest > 0 ? sqrt(rest / (n - 2)) : 0;
    if (xx > 0) line.slope -= line.around / sqrt(xx);
    line.start = all->y0 + y - line.slope * line.mean;
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

/* Of many numbers, how many there are, their sum and that of their squares. */
typedef struct { uint64_t count, total, squares; } lsq_moments;

/* With every fourth of sums of codes more, without those that stand for nothing: many are alike. */
static void lsq_moments_add(lsq_moments *known, const uint16_t *sums, int64_t n, uint16_t nothing) {
    for (int64_t i = 0; i < n; i += 4) {
        const uint64_t there = sums[i] != nothing, own = there ? sums[i] : 0;
        known->count += there;
        known->total += own;
        known->squares += own * own;
    }
}

/* The x below which most points at a given y are: all but those that are `margin` deviations above their mean. `all`: of the
 * x of all points. The worse a line tells y from x, the less y tells of x: then it is where all points are. */
static double lsq_line_below(const lsq_line *line, const lsq_moments *all, double y, double margin) {
    const double count = all->count ? (double)all->count : 1, centre = (double)all->total / count;
    const double square = (double)all->squares / count - centre * centre, wide = square > 0 ? square : 0;
    const double both = line->slope * line->slope * wide + line->around * line->around;
    if (!(both > 0)) return centre;
    const double mean = centre + line->slope * wide / both * (y - line->start - line->slope * centre);
    return mean + margin * line->around * sqrt(wide / both);
}

#endif

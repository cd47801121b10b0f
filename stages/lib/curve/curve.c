/* curve.c: what follows from a curve. */
#include "stages/lib/curve/curve.h"

#include <math.h>

bool pst_curve_add(struct pst_curve *c, uint64_t bytes, double seconds)
{
    const struct pst_curve_point *last = c->n > 0 ? &c->point[c->n - 1] : NULL;
    if (c->n == PST_CURVE_POINTS_MAX || !isfinite(seconds) || seconds <= 0 ||
        bytes <= (last != NULL ? last->bytes : 0))
        return false;
    c->point[c->n++] = (struct pst_curve_point){
        .bytes = bytes, .seconds = last != NULL ? fmax(seconds, last->seconds) : seconds};
    return true;
}

double pst_curve_rate(const struct pst_curve *c)
{
    double rate = 0;
    for (int i = 0; i < c->n; i++)
        rate = fmax(rate, (double)c->point[i].bytes / c->point[i].seconds);
    return rate;
}

double pst_curve_seconds(const struct pst_curve *c, uint64_t bytes)
{
    assert(c->n > 0);
    const struct pst_curve_point *last = &c->point[c->n - 1];
    if (bytes <= c->point[0].bytes)
        return c->point[0].seconds; /* no drive was seen to serve less in less time */
    for (int i = 1; i < c->n; i++) {
        const struct pst_curve_point *a = &c->point[i - 1], *b = &c->point[i];
        if (bytes <= b->bytes)
            return a->seconds +
                   (b->seconds - a->seconds) * (double)(bytes - a->bytes) / (double)(b->bytes - a->bytes);
    }
    return last->seconds + (double)(bytes - last->bytes) / pst_curve_rate(c);
}

uint64_t pst_curve_gap(const struct pst_curve *c, uint64_t read_bytes, uint64_t most)
{
    const uint64_t room = most / 2 > read_bytes ? most - 2 * read_bytes : 0;
    const double gap = pst_curve_seconds(c, read_bytes) * pst_curve_rate(c) - (double)read_bytes;
    /* a gap that is a multiple of PST_SECTOR must not be missed because a product was rounded */
    const uint64_t bytes = (uint64_t)fmin(fmax(gap + 0.5, 0), (double)room);
    return bytes / PST_SECTOR * PST_SECTOR;
}

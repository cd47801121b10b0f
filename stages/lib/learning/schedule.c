/* schedule.c: the learning rate of a batch. */
#include "stages/lib/learning/schedule.h"

#include <math.h>

/* batch: counted from the end of the warm-up, which took `warm` batches. */
static double cosine(const struct pst_schedule *s, double batch, double warm, double batches_in_epoch)
{
    const double pi = 3.14159265358979323846, all = (double)s->period * batches_in_epoch - warm;
    const double share = batch < all ? batch / all : 1;
    return s->rate_min + (s->rate - s->rate_min) * (1 + cos(pi * share)) / 2;
}

double pst_schedule_rate(const struct pst_schedule *s, uint64_t batch, uint64_t batches_in_epoch,
                         double scale)
{
    assert(batches_in_epoch >= 1);
    const double warm = ceil(s->warmup * (double)batches_in_epoch), at = (double)batch;
    double rate = s->rate;
    const uint64_t periods = s->period > 0 ? batch / batches_in_epoch / (uint64_t)s->period : 0;
    if (s->kind == PST_SCHEDULE_STEP)
        rate *= pow(s->factor, (double)periods);
    else if (s->kind == PST_SCHEDULE_PLATEAU)
        rate *= scale;
    else if (s->kind == PST_SCHEDULE_COSINE)
        rate = cosine(s, at < warm ? 0 : at - warm, warm, (double)batches_in_epoch);
    if (s->kind != PST_SCHEDULE_CONSTANT && rate < s->rate_min)
        rate = s->rate_min;
    return at < warm ? rate * ((at + 1) / warm) : rate;
}

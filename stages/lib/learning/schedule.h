/* schedule.h: the learning rate of a batch. It depends only on the batch's number and, for a plateau, on the
 * state in plateau.h, so a resumed run continues with the same bits.
 *
 * Owner: none. Threads: any. */
#ifndef PST_SCHEDULE_H
#define PST_SCHEDULE_H

#include "common/base.h"

enum pst_schedule_kind {
    PST_SCHEDULE_CONSTANT,
    PST_SCHEDULE_STEP,   /* rate * factor^k, where k is the number of whole periods that have passed */
    PST_SCHEDULE_COSINE, /* falls to rate_min in half a cosine, without restarts */
    PST_SCHEDULE_PLATEAU /* rate * pst_plateau_state.scale */
};

struct pst_schedule {
    enum pst_schedule_kind kind;
    double rate;     /* the highest */
    double rate_min; /* falling rates stay at or above it */
    double factor;
    int64_t period; /* step: epochs, at least 1. cosine: the epoch at whose end the rate is rate_min */
    double warmup;  /* epochs in which the rate rises linearly; 0: none */
};

/* The rate of batch `batch`, counted from 0 over the whole run. batches_in_epoch: at least 1. scale: of the
 * plateau.
 *
 * Warm-up (Goyal et al. 2017, section 2.2): the rates of the first w batches are multiplied by 1/w, 2/w,
 * ..., 1. The cosine (Loshchilov & Hutter 2017, equation 5) begins after the warm-up; steps and plateaus
 * count epochs from the first. */
PST_API double pst_schedule_rate(const struct pst_schedule *schedule, uint64_t batch,
                                 uint64_t batches_in_epoch, double scale);

#endif

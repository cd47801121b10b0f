/* pulse.h: signs of life. The supervisor makes a page of counters, one for each of its processes. Each
 * process inherits the page. A thread of it counts up ten times a second for as long as the process runs. So
 * a busy stage shows life, and a stopped one does not. A counter of 0 means that the process is still being
 * loaded. Owner: the caller. Threads: one, beside the heart's own, which touches only its counter. */
#ifndef PST_PULSE_H
#define PST_PULSE_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/base.h"

#define PST_PULSE_MAX (PST_PAGE / (int)sizeof(uint64_t))

struct pst_pulse { /* the supervisor's */
    int fd;
    _Atomic uint64_t *counts;
};

PST_MUST_USE pst_rc pst_pulse_init(struct pst_pulse *pulse);
void pst_pulse_release(struct pst_pulse *pulse);
uint64_t pst_pulse_of(const struct pst_pulse *pulse, int index);
/* In a forked child, before exec: puts the page where pst_heart_start looks for it. */
bool pst_pulse_inherit(int fd);

struct pst_heart {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stopped; /* ends the wait for the next beat */
    bool stop;
    _Atomic uint64_t *counts;
    int index;
};

/* Starts a thread that counts up counter `index` (a decimal number) of the inherited page. */
PST_API PST_MUST_USE pst_rc pst_heart_start(struct pst_heart *heart, const char *index);
PST_API void pst_heart_stop(struct pst_heart *heart);

#endif

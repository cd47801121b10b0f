/* clock.h: the monotonic clock, which no change of the system's time moves; the processor time of a thread.
 * Owner: none. Threads: any. */
#ifndef PST_CLOCK_H
#define PST_CLOCK_H

#include "common/base.h"

#include <time.h>

static inline uint64_t pst_clock_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline int64_t pst_clock_us(void)
{
    return (int64_t)(pst_clock_ns() / 1000);
}

static inline int64_t pst_clock_ms(void)
{
    return (int64_t)(pst_clock_ns() / 1000000);
}

static inline double pst_clock_s(void)
{
    return (double)pst_clock_ns() * 1e-9;
}

/* The processor time of the calling thread. It costs a system call. */
static inline double pst_clock_thread_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif

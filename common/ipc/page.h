/* page.h: one page of shared memory for each instance of a stage: what it counts, how it spends its time, and
 * how many slots it holds. The instance writes it; the supervisor and `penstock top` read it.
 * Owner: the board (board.h). Threads: one writer, any number of readers. Times are in nanoseconds of the
 * monotonic clock, which all processes of a machine share. */
#ifndef PST_PAGE_H
#define PST_PAGE_H

#include <stdatomic.h>

#include "common/base.h"

#define PST_PAGE_ROUTES_MAX 64 /* routes of one pipeline */

/* What an instance does with its time. */
enum pst_page_state {
    PST_PAGE_BUSY,
    PST_PAGE_WAITS_INPUT,  /* for a frame */
    PST_PAGE_WAITS_CREDIT, /* for a free slot, or for room in a ring */
    PST_PAGE_WAITS_DISK,   /* for work that it has in flight */
    PST_PAGE_STATES,
};

struct pst_page {
    union {
        struct {
            _Atomic uint32_t sleeping; /* 1: it waits on its inbox and must be woken */
            _Atomic uint32_t turn;     /* odd while the three fields below change */
            _Atomic uint32_t state;    /* enum pst_page_state, since since_ns; not yet in spent_ns */
            _Atomic uint64_t since_ns; /* 0: it does not run yet, or has ended */
            _Atomic uint64_t spent_ns[PST_PAGE_STATES];
            _Atomic uint64_t items, bytes, frames;
            _Atomic uint64_t lookups, hits; /* in a cache */
            _Atomic uint32_t in_flight;     /* disk operations */
            _Atomic uint64_t batch;         /* the last one it handled */
            _Atomic uint64_t copied_bytes;
            _Atomic uint64_t bus_ns;  /* of the busy time: it waited for the pipeline's modelled bus */
            _Atomic uint64_t taken;   /* frames and credits that it has taken */
            _Atomic uint32_t early;   /* frames that came before their turn, at ordered inputs */
            _Atomic uint64_t missing; /* if early: the batch whose turn it is */
            _Atomic uint16_t held[PST_PAGE_ROUTES_MAX]; /* slots that it has, by route */
            _Atomic uint32_t activity;                  /* enum pst_activity (stage.h), since activity_ns */
            _Atomic uint64_t activity_ns, steps, steps_total; /* steps_total 0: not known */
        };
        char whole[PST_PAGE];
    };
};
static_assert(sizeof(struct pst_page) == PST_PAGE, "one page an instance");

/* Books the time up to now to the state it was in. From now on it is in `state`. Returns the old state. */
enum pst_page_state pst_page_enter(struct pst_page *page, enum pst_page_state state);
/* The same at the end of the instance's work: nothing is booked from now on. */
void pst_page_leave(struct pst_page *page);

struct pst_page_times {
    uint64_t ns[PST_PAGE_STATES]; /* up to the time of the call, the lasting state included */
    enum pst_page_state state;
    uint64_t lasts_ns; /* how long it has been in that state; 0: it does not run */
};

/* For a reader. A page that a broken stage has written over gives wrong figures, but the call returns. */
PST_API void pst_page_read(const struct pst_page *page, struct pst_page_times *times);

#endif

/* device.h: what a stage computes with: the CPU's twin, or CUDA's with a queue on one GPU and the memory that
 * the stage took there.
 *
 * Owner: pst_device_open fills what the caller owns; pst_device_close releases it with all that was taken,
 * and accepts one that is zeroed. Threads: one at a time. Errors have been told with pst_fail. */
#ifndef PST_DEVICE_H
#define PST_DEVICE_H

#include "kernels/twin.h"

PST_BEGIN_DECLS

#define PST_DEVICE_TAKEN_MAX 64 /* pieces of memory of one stage: it takes them once, in open */

struct pst_device {
    const struct pst_twin *twin;
    struct pst_queue *q;            /* NULL on the CPU */
    int number;                     /* of cuda:N; -1: the CPU */
    char name[32];                  /* as it was asked for */
    struct pst_twin_record *record; /* pinned: what pst_device_recorded waited for */
    uint64_t records;               /* how many were put on the queue */
    struct {
        void *at;
        enum pst_twin_memory kind;
        uint64_t bytes;
    } taken[PST_DEVICE_TAKEN_MAX];
    int ntaken;
    uint64_t device_bytes, pinned_bytes; /* of what was taken */
    bool left_alone;                     /* a wait for it has failed: nothing of it can be released */
};

/* place: "cpu:N" or "cuda:N", as pst_device says it. PST_E_UNSUPPORTED: this machine or build has none;
 * PST_E_ARG: no such place. */
PST_API PST_MUST_USE pst_rc pst_device_open(struct pst_device *d, const char *place);
PST_API void pst_device_close(struct pst_device *d);

static inline bool pst_device_is_cuda(const struct pst_device *d)
{
    return d->twin != NULL && d->number >= 0;
}

/* Makes the queue, in place of an earlier one: for calls over at most `most` ids or edges and rows of at most
 * `columns` floats; options' device is d's. Nothing on the CPU. */
PST_API PST_MUST_USE pst_rc pst_device_queue(struct pst_device *d, struct pst_queue_options options);

/* Memory that is there until pst_device_give or close; not initialised. PST_E_NOMEM says what it is for, how
 * much was asked, how much the device has and has left, and what this stage had taken. */
PST_API PST_MUST_USE pst_rc pst_device_take(struct pst_device *d, enum pst_twin_memory kind, uint64_t bytes,
                                            const char *what, void **at);
/* Waits for the queue first; NULL: nothing. */
PST_API void pst_device_give(struct pst_device *d, void *at);

/* Puts a record of counts[0..n) behind all that the queue has. */
PST_API void pst_device_record(struct pst_device *d, const int64_t *const *counts, int n);
/* Sleeps until the last record is there, not for what was put behind it. Then d->record->counts has it.
 * Returns what a kernel found in its data (PST_E_LIMIT: no room, PST_E_FORMAT: an id out of range), which has
 * no message yet: *data_fault is set; or what failed. */
PST_API PST_MUST_USE pst_rc pst_device_recorded(struct pst_device *d, bool *data_fault);
/* Sleeps until all is done. Both have a deadline (PST_QUEUE_WAIT_S). */
PST_API PST_MUST_USE pst_rc pst_device_wait(struct pst_device *d);

PST_END_DECLS
#endif

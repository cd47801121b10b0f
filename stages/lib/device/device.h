/* device.h: the device of a stage: the CPU's table of kernels, or CUDA's table with a queue on one GPU, and
 * the memory that the stage allocated there.
 *
 * Owner: the caller owns struct pst_device. pst_device_open fills it. pst_device_close releases it and all
 * memory that was taken; it accepts a zeroed struct. Threads: one at a time. Errors have a message. */
#ifndef PST_DEVICE_H
#define PST_DEVICE_H

#include "kernels/twin.h"

PST_BEGIN_DECLS

#define PST_DEVICE_TAKEN_MAX 64 /* allocations of one stage, all made in `open` */

struct pst_device {
    const struct pst_twin *twin;
    struct pst_queue *q;            /* NULL on the CPU */
    int number;                     /* of cuda:N; -1: the CPU */
    char name[32];                  /* as the caller passed it */
    struct pst_twin_record *record; /* pinned memory; pst_device_recorded waits for it */
    uint64_t records;               /* put on the queue so far */
    struct {
        void *at;
        enum pst_twin_memory kind;
        uint64_t bytes;
    } taken[PST_DEVICE_TAKEN_MAX];
    int ntaken;
    uint64_t device_bytes, pinned_bytes; /* taken */
    bool left_alone; /* a wait has timed out: kernels may still run, so nothing can be released */
};

/* place: "cpu:N" or "cuda:N", as pst_device_name(self) returns it. PST_E_UNSUPPORTED: this machine or build
 * has no such device. PST_E_ARG: not a place. */
PST_API PST_MUST_USE pst_rc pst_device_open(struct pst_device *d, const char *place);
PST_API void pst_device_close(struct pst_device *d);

static inline bool pst_device_is_cuda(const struct pst_device *d)
{
    return d->twin != NULL && d->number >= 0;
}

/* Makes the queue, and frees an earlier one. options.device is ignored. On the CPU, only options.precision
 * matters: it chooses the table. PST_E_NOMEM. PST_E_UNSUPPORTED: this CPU lacks this precision. */
PST_API PST_MUST_USE pst_rc pst_device_queue(struct pst_device *d, struct pst_queue_options options);

/* Makes the queue's own memory large enough for calls over so many ids and columns. Does nothing on the CPU.
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_device_reserve(struct pst_device *d, int64_t most, int64_t columns);

/* Allocates memory until pst_device_give or pst_device_close. It is not initialised. `what` names its
 * purpose. PST_E_NOMEM: the message has the purpose, the size, the memory of the device and the memory that
 * this stage has taken. */
PST_API PST_MUST_USE pst_rc pst_device_take(struct pst_device *d, enum pst_twin_memory kind, uint64_t bytes,
                                            const char *what, void **at);
/* Frees memory, after waiting for the queue. NULL: does nothing. */
PST_API void pst_device_give(struct pst_device *d, void *at);

/* Puts a record of the numbers at counts[0..n) on the queue. */
PST_API void pst_device_record(struct pst_device *d, const int64_t *const *counts, int n);
/* Sleeps until the last record has come. It does not wait for work that was put on the queue after the
 * record. d->record->counts then has the numbers. *data_fault: a kernel found an error in its data
 * (PST_E_LIMIT: no room, PST_E_FORMAT: an id is out of range), and the error has no message. */
PST_API PST_MUST_USE pst_rc pst_device_recorded(struct pst_device *d, bool *data_fault);
/* The same for a record of the caller's, in pinned memory: sleeps until it has this sequence. */
PST_API PST_MUST_USE pst_rc pst_device_recorded_in(struct pst_device *d, const struct pst_twin_record *record,
                                                   uint64_t sequence, bool *data_fault);
/* Makes a graph (twin.h) of what the function puts on the queue. The function must not wait. */
PST_API PST_MUST_USE pst_rc pst_device_graph(struct pst_device *d, void (*put)(void *arg), void *arg,
                                             struct pst_twin_graph **graph);
/* Sleeps until the queue is empty. All waits end with PST_E_TIMEOUT after PST_QUEUE_WAIT_S. */
PST_API PST_MUST_USE pst_rc pst_device_wait(struct pst_device *d);

PST_END_DECLS
#endif

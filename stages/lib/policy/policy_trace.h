/* policy_trace.h: a file with the vertices of every batch, as a sampler sampled them (its parameter
 * trace_ids). `penstock replay` computes from it what a cache would hit.
 *
 * The file is a sequence of records: struct pst_policy_trace_record, then its n ids (int64). Several samplers
 * append to one file, so records are in any order. A resumed run may sample a batch again; the last record of
 * a micro-batch counts.
 *
 * Owner: the caller. Threads: any; the functions have no state. */
#ifndef PST_POLICY_TRACE_H
#define PST_POLICY_TRACE_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_POLICY_TRACE_MAGIC UINT64_C(0x3173646963617274) /* "tracids1" */

struct pst_policy_trace_record {
    uint64_t magic;
    uint64_t batch; /* counts over the run */
    uint32_t micro;
    uint32_t reserved; /* 0 */
    uint64_t n;        /* ids that follow */
};

/* Opens the file to append to it. empty: makes it empty first. *fd is the caller's. PST_E_ARG: it cannot be
 * written. */
PST_API PST_MUST_USE pst_rc pst_policy_trace_open(const char *path, bool empty, int *fd);
/* Appends one record, in one call, so that records of several processes do not mix. PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_policy_trace_append(int fd, uint64_t batch, uint32_t micro,
                                                    const int64_t *ids, int64_t n);

struct pst_policy_trace_batch {
    uint64_t batch;
    uint32_t micro;
    int64_t n;
    const int64_t *ids; /* in the mapped file */
    uint64_t at;        /* of the record, in bytes */
};

struct pst_policy_trace {
    struct pst_policy_trace_batch *batches; /* in the order of (batch, micro) */
    int64_t n, ids, batch_max;              /* batches; ids of all; ids of the largest */
    int64_t vertices;                       /* the largest id + 1 */
    uint64_t cut_bytes;                     /* of a last record that is incomplete: the run ended meanwhile */
    const void *map;
    uint64_t map_bytes;
};

/* PST_E_ARG: the file cannot be read. PST_E_FORMAT: it is not such a file; the message says where and why. */
PST_API PST_MUST_USE pst_rc pst_policy_trace_read(struct pst_policy_trace *t, const char *path);
PST_API void pst_policy_trace_close(struct pst_policy_trace *t);

PST_END_DECLS
#endif

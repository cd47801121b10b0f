/* cache.h: the state of the stage `cache`, for its parts: cache.c (ports, parameters, events), setup.c
 * (sizes, memory) and rows.c (slots and the rows in them).
 *
 * Owner: the runtime, which allocates it. Threads: one. */
#ifndef PST_CACHE_STAGE_H
#define PST_CACHE_STAGE_H

#include "common/slots/minibatch.h"
#include "common/stage.h"
#include "common/store/store.h"
#include "stages/lib/cache/cache_rows.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/policy/policy.h"

/* What was decided for a batch that is being read. Arrays have room for the rows of a slot. */
struct cache_job {
    uint64_t batch;
    uint32_t micro;
    int64_t asked; /* requests */
    int64_t hits, kept;
    int32_t *hit_at, *hit_line;   /* position in the batch, and line, of each hit */
    int32_t *kept_at, *kept_line; /* the same of each row that is read and kept */
};

struct cache {
    /* parameters */
    uint64_t cache_bytes;
    int64_t window;
    int64_t keep_in_flight; /* requests; 0: as many as the slots have */
    enum pst_policy_kind kind;
    double margin;
    struct pst_ints fanout;
    bool split;

    int sample, rows, landed, batch; /* ports */
    struct pst_dataset ds;
    struct pst_plan plan;
    uint64_t batches; /* of an epoch */
    struct pst_minibatch_layout layout;
    uint64_t row_bytes; /* data bytes of a row */

    struct pst_policy *policy;
    float *hotness;
    int64_t nlines;
    struct pst_cache_rows static_lines; /* policy static: the lines, filled from the start */
    char *lines;                        /* stride_bytes each */
    struct pst_cache_rows buffer;       /* the constant buffer: rows that the plan caches */

    struct pst_frame
        *waiting; /* samples that are not decided, oldest first: a ring, as large as their route */
    uint32_t nwaiting_max, first, nwaiting;
    uint32_t entered; /* the first so many of them are in the policy's window, at most window + 1 */
    bool ended;       /* no more samples will come */
    struct pst_credit credit;
    bool credited;
    struct cache_job *jobs; /* a ring of as many as there are slots of rows */
    uint32_t njobs, first_job, asked;
    int64_t in_flight; /* requests of all jobs */
    /* scratch for one batch */
    int32_t *buffer_at, *buffer_row, *rest_at, *hit, *keep;
    int64_t *rest;

    struct {
        uint64_t batches, lookups, hits, kept, buffer_hits;
        uint32_t waiting_max, asked_max;
        double decide_s, copy_s;
    } count;
};

/* setup.c */
PST_MUST_USE pst_rc pst_cache_stage_size(struct pst_stage *self, struct cache *c);
PST_MUST_USE pst_rc pst_cache_stage_open(struct pst_stage *self, struct cache *c);
void pst_cache_stage_release(struct cache *c);

/* rows.c. The first checks a sample, and shows it to the policy. */
PST_MUST_USE pst_rc pst_cache_stage_enter(struct pst_stage *self, struct cache *c,
                                          const struct pst_frame *sample);
/* Decides the batch of the sample, fills the credited slot of rows, and sends it to be read. */
PST_MUST_USE pst_rc pst_cache_stage_ask(struct pst_stage *self, struct cache *c,
                                        const struct pst_frame *sample);
/* The rows of a batch were read. Copies the others from the lines to the slot, and then kept rows to their
 * lines. Batches come here in order, so a line has what it had when the batch was decided. */
PST_MUST_USE pst_rc pst_cache_stage_land(struct pst_stage *self, struct cache *c,
                                         const struct pst_frame *frame);

#endif

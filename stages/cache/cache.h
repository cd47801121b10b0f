/* cache.h: the state of the stage `cache`, for its parts: cache.c (ports, parameters, events), setup.c
 * (sizes, memory), rows.c (slots and the rows in them), gpu.c (lines in a GPU's memory), pages.c (lines of
 * several rows) and super_batch.c.
 *
 * Owner: the runtime, which allocates it. Threads: one. */
#ifndef PST_CACHE_STAGE_H
#define PST_CACHE_STAGE_H

#include "common/slots/minibatch.h"
#include "common/slots/request.h"
#include "common/stage.h"
#include "common/store/array_id.h"
#include "common/store/store.h"
#include "stages/lib/cache/cache_rows.h"
#include "stages/lib/device/device.h"
#include "stages/lib/plan/plan.h"
#include "stages/lib/sampling/seeds.h"
#include "stages/lib/policy/policy.h"

/* What was decided for a batch that is being read. Arrays have room for the rows of a slot. Rows and lines
 * are numbered; if lines are pages, row r of line l has number l * line_rows + r. */
struct cache_job {
    uint64_t batch;
    uint32_t micro;
    int64_t asked; /* requests */
    int64_t hits, kept;
    int32_t *hit_at, *hit_line;   /* position in the batch, and line, of each hit */
    int32_t *kept_at, *kept_line; /* the same of each row that is read and kept; or the read pages */
    /* if lines are pages: position of each row on a page that is read, and its place among these pages */
    int64_t fresh;
    int32_t *fresh_at, *fresh_from;
    /* on a GPU: positions of rows that are read and not kept; and what its kernels get, in pinned memory */
    int64_t rows, left, buffered;
    int32_t *left_at;
    int32_t *lists; /* hits, buffered rows and kept rows: for each kind, positions and sources */
    struct pst_twin_record *record; /* of the work on this batch, which is the entry's `turns`-th */
    uint64_t turns;
};

/* A page of the batch at hand. */
struct cache_page {
    int64_t page;
    uint64_t turn; /* of another batch: the place is free */
    int32_t unit;
};

/* Of policy belady. */
struct cache_super_batch {
    struct pst_ref *held; /* decided samples of the super-batch */
    uint32_t nheld, largest;
    uint64_t count;
    double since; /* when the phase began that lasts */
    double sample_s, inspect_s, gather_s;
};

struct cache {
    /* parameters */
    uint64_t cache_bytes, page_bytes;
    int64_t window;
    int64_t keep_in_flight; /* requests; 0: as many as the slots have */
    enum pst_policy_kind kind;
    enum pst_seeds_shuffle shuffle;
    double margin;
    struct pst_named_ints fanout;
    bool split;

    int sample, rows, landed, batch, cached; /* ports */
    struct pst_device device;
    struct pst_dataset ds;
    struct pst_plan plan;
    uint64_t batches; /* of an epoch */
    struct pst_minibatch_layout layout;
    uint64_t row_bytes; /* data bytes of a row */
    /* A line has line_rows rows, which take line_bytes; a row takes row_pages pages, if it is larger than
     * one. Pages are read to pages_at of a slot, if they have several rows. */
    int64_t line_rows;
    uint64_t line_bytes, row_pages, pages_at;

    struct pst_policy *policy;
    float *hotness;
    int64_t nlines;
    struct pst_cache_rows static_lines; /* policy static on a CPU: the lines, filled from the start */
    char *lines;                        /* line_bytes each; on a GPU, in its memory */
    struct pst_cache_rows buffer;       /* the constant buffer: rows that the plan caches */
    struct pst_cache *buffer_index;     /* in host memory */
    void *index_memory;                 /* on a GPU: of that index */
    int32_t *lists;                     /* on a GPU: a batch's lists in its memory */
    void *pinned;                       /* on a GPU: of all jobs */

    struct pst_frame
        *waiting; /* samples that are not decided, oldest first: a ring, as large as their route */
    uint32_t nwaiting_max, first, nwaiting;
    uint32_t entered; /* the first so many of them are in the policy's window, at most window + 1 */
    bool ended;       /* no more samples will come */
    struct pst_credit credit, credit_cached;
    bool credited, credited_cached;
    struct pst_frame
        *back; /* on a GPU: slots whose rows were read, which wait for one of cached rows: a ring */
    uint32_t first_back, nback;
    struct cache_job *jobs; /* a ring of as many as there are slots of rows */
    uint32_t njobs, first_job, asked;
    int64_t in_flight; /* requests of all jobs */
    /* scratch for one batch */
    int32_t *buffer_at, *buffer_row, *rest_at, *hit, *keep;
    int64_t *rest;
    /* the units that the policy decides: the rest, or, if lines are pages, their pages */
    const int64_t *unit;
    int64_t *page;
    int32_t *unit_of; /* of each row */
    int32_t *unit_at; /* the position of a row of each unit */
    int32_t *fault;   /* the place of each unit that is read, among those */
    struct cache_page *pages;
    uint64_t page_places, turn;
    struct cache_super_batch super;

    struct {
        uint64_t batches, lookups, hits, kept, buffer_hits, units, faults;
        uint64_t buffer_gpu_hits; /* those of buffer_hits in the plan's GPU tier */
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

/* Takes the job of a batch whose rows were read from the ring. PST_E_PEER: it is not this frame's. */
PST_MUST_USE pst_rc pst_cache_stage_landed(struct cache *c, const struct pst_frame *frame,
                                           struct cache_job **job);
/* The batch has all its rows. */
void pst_cache_stage_done(struct pst_stage *self, struct cache *c, const struct cache_job *job);

/* gpu.c: what the stage does on a GPU. The lines are in its memory, and only kernels touch rows. */
static inline bool pst_cache_stage_on_gpu(const struct cache *c)
{
    return pst_device_is_cuda(&c->device);
}
/* Makes the queue, once the size of slots is known. PST_E_ARG: the slots of cached rows are in host memory.
 */
PST_MUST_USE pst_rc pst_cache_stage_gpu_open(struct pst_stage *self, struct cache *c);
/* Takes the lines, and fills those of the policy static. */
PST_MUST_USE pst_rc pst_cache_stage_gpu_open_lines(struct cache *c, const int64_t *vertices, int64_t n);
/* Takes the memory for lists. The ring of jobs exists. */
PST_MUST_USE pst_rc pst_cache_stage_gpu_open_jobs(struct cache *c);
/* Before a batch is decided: waits until kernels have read the job's lists of an earlier batch, and the
 * slot's earlier users are done with it. */
PST_MUST_USE pst_rc pst_cache_stage_gpu_begin(struct pst_stage *self, struct cache *c, struct cache_job *job);
/* Keeps the decided lists, those of buffered rows too, for the kernels. rows: of the batch. */
void pst_cache_stage_gpu_note(const struct cache *c, struct cache_job *job, int64_t rows, int64_t buffered);
/* Lands batches whose rows were read, while there are slots of cached rows for them. */
PST_MUST_USE pst_rc pst_cache_stage_gpu_land(struct pst_stage *self, struct cache *c);

/* pages.c. The first sets line_rows, line_bytes and row_pages. PST_E_ARG. */
PST_MUST_USE pst_rc pst_cache_stage_size_pages(struct cache *c);
/* Sets `unit` and, if lines are pages, unit_of and unit_at of the first `rows` of `rest`. Returns the number
 * of units. */
int64_t pst_cache_stage_units(struct cache *c, int64_t rows);
/* If lines are pages: the request for a page, which is the fault-th that the batch reads. */
struct pst_request pst_cache_stage_page_request(const struct cache *c, int64_t page, uint64_t fault);
/* The same: where each of the first `rows` of `rest` comes from. */
void pst_cache_stage_note_rows(const struct cache *c, struct cache_job *job, int64_t rows);

/* super_batch.c. The first shows the policy a super-batch whose samples have all come, if the last one is
 * done. */
PST_MUST_USE pst_rc pst_cache_stage_begin_super_batch(struct pst_stage *self, struct cache *c);
/* Releases the samples of a super-batch whose rows have all come. */
PST_MUST_USE pst_rc pst_cache_stage_end_super_batch(struct pst_stage *self, struct cache *c);
PST_MUST_USE pst_rc pst_cache_stage_report_super_batches(struct pst_stage *self, const struct cache *c);

#endif

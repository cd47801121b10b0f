/* cache.h: the state of the stage `cache`, for its parts: cache.c (ports, parameters, events), setup.c
 * (sizes, memory), rows.c (slots and the rows in them), pages.c (lines of several rows) and super_batch.c.
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

    int sample, rows, landed, batch; /* ports */
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
    struct pst_cache_rows static_lines; /* policy static: the lines, filled from the start */
    char *lines;                        /* line_bytes each */
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

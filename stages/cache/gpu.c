/* gpu.c: the cache on a GPU: its lines are in the GPU's memory. The host decides, in batch order, as it does
 * for a CPU. When the rows of a batch have come, four copies go on the stage's queue: hits from the lines,
 * and rows of the constant buffer, to the slot of cached rows; kept rows from the slot of the batch to their
 * lines, and from there to the slot of cached rows. The queue keeps the order of batches, so a line has the
 * row that it had when the batch was decided. The trainer brings the rows that were read and not kept, so
 * each row that was read passes the bus once. */
#include <stdlib.h>
#include <string.h>

#include "common/store/dataset/rows.h"
#include "stages/cache/cache.h"

#define CACHE_LINE 64 /* bytes */

/* Lists of positions and sources: a row of a batch is in one of the three kinds at most. */
static uint64_t lists_bytes(const struct cache *c)
{
    return 2 * (uint64_t)c->layout.size.n[c->layout.size.hops] * sizeof(int32_t);
}

pst_rc pst_cache_stage_gpu_open(struct pst_stage *self, struct cache *c)
{
    if (pst_on_host(self, c->cached))
        return pst_fail(
            PST_E_ARG,
            "the slots of the output cached are in host memory, because the stage that it is "
            "linked to cannot share the memory of %s: place both stages on one GPU, or on two that "
            "reach each other, or this stage on a CPU",
            c->device.name);
    const pst_rc rc = pst_device_queue(
        &c->device, (struct pst_queue_options){.most = c->layout.size.n[c->layout.size.hops], .first = true});
    return rc == PST_OK ? pst_stream(self, c->device.twin->stream(c->device.q)) : rc;
}

pst_rc pst_cache_stage_gpu_open_lines(struct cache *c, const int64_t *vertices, int64_t n)
{
    void *lines;
    const pst_rc rc = pst_device_take(&c->device, PST_TWIN_MEMORY_DEVICE, (uint64_t)c->nlines * c->line_bytes,
                                      "lines (set a smaller cache_bytes)", &lines);
    c->lines = lines;
    return rc != PST_OK || vertices == NULL
               ? rc
               : pst_cache_rows_write(&c->device, lines, pst_feature_file(&c->ds, 0),
                                      pst_feature_files(&c->ds), c->ds.vertices, c->ds.stride_bytes, vertices,
                                      n);
}

pst_rc pst_cache_stage_gpu_open_jobs(struct cache *c)
{
    const uint64_t records = pst_align_up(c->njobs * sizeof(struct pst_twin_record), CACHE_LINE);
    const uint64_t lists = pst_align_up(lists_bytes(c), CACHE_LINE);
    const size_t rows = (size_t)c->layout.size.n[c->layout.size.hops];
    void *at = NULL;
    pst_rc rc = pst_device_take(&c->device, PST_TWIN_MEMORY_DEVICE, lists, "a batch's lists", &at);
    c->lists = at;
    if (rc == PST_OK)
        rc = pst_device_take(&c->device, PST_TWIN_MEMORY_PINNED, records + c->njobs * lists,
                             "the lists of batches that are being read", &c->pinned);
    if (rc == PST_OK)
        memset(c->pinned, 0, records);
    for (uint32_t i = 0; i < c->njobs && rc == PST_OK; i++) {
        struct cache_job *job = &c->jobs[i];
        job->record = (struct pst_twin_record *)c->pinned + i;
        job->lists = (int32_t *)(void *)((char *)c->pinned + records + i * lists);
        job->left_at = malloc(rows * sizeof *job->left_at);
        if (job->left_at == NULL)
            rc = pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the positions of %zu rows", rows);
    }
    return rc;
}

/* ---- deciding ------------------------------------------------------------------------------------- */

pst_rc pst_cache_stage_gpu_begin(struct pst_stage *self, struct cache *c, struct cache_job *job)
{
    bool data_fault = false;
    pst_rc rc =
        job->turns == 0 ? PST_OK : pst_device_recorded_in(&c->device, job->record, job->turns, &data_fault);
    if (data_fault)
        rc = pst_fail(rc, "%s: the kernels that copy rows of batch %llu failed: this is a fault of Penstock",
                      c->device.name, (unsigned long long)job->batch);
    /* The trainer may have released the slot while its kernels still read it. */
    return rc == PST_OK ? pst_slot_wait(self, c->credit.ref) : rc;
}

static int32_t *append(int32_t *to, const int32_t *from, int64_t n)
{
    memcpy(to, from, (size_t)n * sizeof *to);
    return to + n;
}

void pst_cache_stage_gpu_note(const struct cache *c, struct cache_job *job, int64_t rows, int64_t buffered)
{
    int32_t *to = job->lists;
    assert(job->hits + buffered + job->kept <= rows);
    job->rows = rows;
    job->buffered = buffered;
    to = append(to, job->hit_at, job->hits);
    to = append(to, job->hit_line, job->hits);
    to = append(to, c->buffer_at, buffered);
    to = append(to, c->buffer_row, buffered);
    to = append(to, job->kept_at, job->kept);
    (void)append(to, job->kept_line, job->kept);
}

/* ---- landing -------------------------------------------------------------------------------------- */

/* Puts the copies of a batch on the queue. rows: its slot of cached rows. A wait for the record reports a
 * failure. */
static void put_copies(const struct cache *c, struct cache_job *job, const char *slot, char *rows)
{
    const struct pst_twin *t = c->device.twin;
    struct pst_queue *q = c->device.q;
    const uint64_t stride = c->layout.stride_bytes;
    const int64_t listed = 2 * (job->hits + job->buffered + job->kept);
    const int32_t *hit_at = c->lists, *hit_line = hit_at + job->hits, *buffer_at = hit_line + job->hits,
                  *buffer_row = buffer_at + job->buffered, *kept_at = buffer_row + job->buffered,
                  *kept_line = kept_at + job->kept;
    const struct pst_twin_tiers buffer = {
        .near = c->buffer.rows, .far = c->buffer.far, .near_rows = c->buffer.gpu_n};
    if (listed > 0)
        (void)t->copy(q, c->lists, job->lists, (uint64_t)listed * sizeof *c->lists);
    if (c->ds.vertex_types > 0) /* rows of types without features are not read, but zero */
        (void)t->fill(q, rows, 0, (uint64_t)job->rows * stride);
    if (job->hits > 0)
        t->gather(q, c->lines, stride, hit_line, rows, stride, hit_at, job->hits, c->row_bytes);
    if (job->buffered > 0)
        t->gather_tiers_n(q, &buffer, stride, buffer_row, rows, stride, buffer_at,
                          (struct pst_twin_n){NULL, job->buffered}, c->row_bytes);
    /* the slot of cached rows can be on another GPU, which is better written than read */
    if (job->kept > 0) {
        t->gather(q, slot + c->layout.features_at, stride, kept_at, c->lines, stride, kept_line, job->kept,
                  c->row_bytes);
        t->gather(q, c->lines, stride, kept_line, rows, stride, kept_at, job->kept, c->row_bytes);
    }
    (void)t->record(q, job->record, ++job->turns, NULL, 0);
}

/* What the slot still has for the trainer to bring: the rows that were read and are not in the slot of cached
 * rows. */
static void leave_rows(const struct cache *c, const struct cache_job *job, char *slot)
{
    struct pst_minibatch *mb = (struct pst_minibatch *)(void *)slot;
    memcpy(slot + c->layout.missing_at, job->left_at, (size_t)job->left * sizeof *job->left_at);
    mb->requests = mb->served = (uint32_t)job->left;
}

static pst_rc land(struct pst_stage *self, struct cache *c, const struct pst_frame *frame)
{
    struct cache_job *job;
    const struct pst_credit *credit = &c->credit_cached;
    char *slot = pst_slot(self, frame->refs[0], NULL), *rows = pst_slot(self, credit->ref, NULL);
    if (slot == NULL || rows == NULL)
        return PST_E_STATE;
    pst_rc rc = pst_cache_stage_landed(c, frame, &job);
    if (rc == PST_OK && (credit->batch != frame->batch || credit->micro != frame->micro))
        rc = pst_fail(PST_E_STATE,
                      "the runtime gave a slot of cached rows for micro-batch %u of batch %llu, but "
                      "micro-batch %u of batch %llu is next: this is a fault of Penstock",
                      credit->micro, (unsigned long long)credit->batch, frame->micro,
                      (unsigned long long)frame->batch);
    if (rc == PST_OK)
        rc = pst_minibatch_check_served((const struct pst_minibatch *)(void *)slot);
    if (rc != PST_OK)
        return pst_wrap(rc, "batch %llu", (unsigned long long)frame->batch);
    const double begin = pst_now();
    put_copies(c, job, slot, rows);
    leave_rows(c, job, slot);
    c->credited_cached = false;
    const struct pst_frame cached = {.batch = frame->batch,
                                     .micro = frame->micro,
                                     .flags = frame->flags,
                                     .nrefs = 1,
                                     .refs = {credit->ref}};
    rc = pst_send(self, c->cached, &cached);
    if (rc == PST_OK)
        rc = pst_send(self, c->batch, frame);
    c->count.copy_s +=
        pst_now() - begin; /* without events between processes, sending waits for the kernels */
    pst_cache_stage_done(self, c, job);
    return rc;
}

pst_rc pst_cache_stage_gpu_land(struct pst_stage *self, struct cache *c)
{
    pst_rc rc = PST_OK;
    while (c->nback > 0 && c->credited_cached && rc == PST_OK) {
        const struct pst_frame frame = c->back[c->first_back];
        c->first_back = (c->first_back + 1) % c->njobs;
        c->nback--;
        rc = land(self, c, &frame);
    }
    return rc;
}

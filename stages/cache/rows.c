/* rows.c: from samples to slots of rows, and what happens to the rows that were read. */
#include <string.h>

#include "kernels/kernels.h"
#include "stages/cache/cache.h"
#include "stages/lib/sampling/fill.h"

/* ---- samples -------------------------------------------------------------------------------------- */

/* Copies the header of a sample, and checks that its slot can become one of rows. */
static pst_rc read_sample(struct pst_stage *self, const struct cache *c, const struct pst_frame *frame,
                          const struct pst_minibatch **slot, struct pst_minibatch *mb)
{
    uint64_t bytes = 0;
    const struct pst_minibatch_size *most = &c->layout.size;
    *slot = pst_slot(self, frame->refs[0], &bytes);
    if (*slot == NULL)
        return PST_E_STATE;
    pst_rc rc = pst_minibatch_read(*slot, bytes, mb);
    if (rc != PST_OK)
        return rc;
    bool fits = mb->hops == (uint32_t)most->hops && mb->requests == 0 && mb->batch == frame->batch;
    for (int h = 0; fits && h <= most->hops; h++)
        fits = mb->n[h] <= most->n[h];
    for (int h = 0; fits && h < most->hops; h++) {
        const int32_t *indptr = pst_minibatch_at(*slot, mb->indptr_at[h]);
        fits = indptr[mb->n[h]] >= 0 && indptr[mb->n[h]] <= most->edges[h];
        if (fits &&
            ((mb->weights_at[h] != 0) != most->weights || (mb->relations_at[h] != 0) != most->relations))
            return pst_fail(PST_E_PEER,
                            "the sample's edges have %sweights and %srelations, but the plan says otherwise: "
                            "make a new plan",
                            mb->weights_at[h] != 0 ? "" : "no ", mb->relations_at[h] != 0 ? "" : "no ");
    }
    return fits
               ? PST_OK
               : pst_fail(PST_E_PEER,
                          "the sample does not fit this stage: it is too large, or has another number of "
                          "hops, or belongs to another batch, or has disk requests: link the input sample to "
                          "the output sample of a sampler, and give both stages the same plan and margin");
}

/* Splits the vertices: buffer_at and buffer_row get those in the constant buffer; rest and rest_at the
 * others. Returns the number of the others. */
static int64_t split(struct cache *c, const int64_t *ids, int64_t n, int64_t *buffered)
{
    int64_t left = n;
    *buffered = 0;
    if (c->buffer.n > 0)
        pst_k_lookup(NULL, c->buffer_index, ids, n, c->buffer_at, c->buffer_row, buffered, c->rest_at, &left);
    for (int64_t i = 0; i < left; i++) {
        if (c->buffer.n == 0)
            c->rest_at[i] = (int32_t)i;
        c->rest[i] = ids[c->rest_at[i]];
    }
    return left;
}

pst_rc pst_cache_stage_enter(struct pst_stage *self, struct cache *c, const struct pst_frame *sample)
{
    const struct pst_minibatch *slot = NULL;
    struct pst_minibatch mb;
    const pst_rc rc = read_sample(self, c, sample, &slot, &mb);
    if (rc != PST_OK)
        return rc;
    const int64_t *ids = pst_minibatch_at(slot, mb.vertices_at), n = mb.n[mb.hops];
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= c->ds.vertices)
            return pst_fail(PST_E_PEER,
                            "batch %llu contains vertex %lld, but the graph has only %lld vertices: do all "
                            "stages use the same dataset?",
                            (unsigned long long)sample->batch, (long long)ids[i], (long long)c->ds.vertices);
    const double begin = pst_now();
    int64_t buffered = 0;
    const int64_t left = split(c, ids, n, &buffered);
    const int64_t units = pst_cache_stage_units(c, left);
    pst_policy_enter(c->policy, c->unit, units);
    c->count.decide_s += pst_now() - begin;
    return PST_OK;
}

/* ---- deciding ------------------------------------------------------------------------------------- */

/* If lines are pages: requests those that are not there, and lists where each row comes from. */
static uint64_t note_pages(struct cache *c, struct cache_job *job, char *slot, int64_t left, int64_t units)
{
    const struct pst_minibatch_layout *l = &c->layout;
    struct pst_request *table = (struct pst_request *)(void *)(slot + l->requests_at);
    int32_t *missing = (int32_t *)(void *)(slot + l->missing_at);
    uint64_t asked = 0;
    job->hits = job->kept = job->fresh = 0;
    for (int64_t u = 0; u < units; u++) {
        if (c->hit[u] >= 0)
            continue;
        if (c->keep[u] >= 0) {
            job->kept_at[job->kept] = (int32_t)asked;
            job->kept_line[job->kept++] = c->keep[u];
        }
        c->fault[u] = (int32_t)asked;
        missing[asked] = c->unit_at[u];
        table[asked] = pst_cache_stage_page_request(c, c->unit[u], asked);
        asked++;
    }
    pst_cache_stage_note_rows(c, job, left);
    return asked;
}

/* Turns the decisions into lists, and requests what is neither a hit nor buffered. */
static uint64_t note(struct cache *c, struct cache_job *job, char *slot, int64_t left)
{
    const struct pst_minibatch_layout *l = &c->layout;
    struct pst_request *table = (struct pst_request *)(void *)(slot + l->requests_at);
    int32_t *missing = (int32_t *)(void *)(slot + l->missing_at);
    uint64_t asked = 0;
    job->hits = job->kept = job->left = 0;
    for (int64_t i = 0; i < left; i++) {
        const int32_t at = c->rest_at[i];
        if (c->hit[i] >= 0) {
            job->hit_at[job->hits] = at;
            job->hit_line[job->hits++] = c->hit[i];
            continue;
        }
        if (c->keep[i] >= 0) {
            job->kept_at[job->kept] = at;
            job->kept_line[job->kept++] = c->keep[i];
        }
        missing[asked] = at;
        table[asked] = (struct pst_request){.op = PST_REQUEST_READ,
                                            .array = PST_ARRAY_FEATURES,
                                            .rows = 1,
                                            .row = (uint64_t)c->rest[i],
                                            .offset = l->features_at + (uint64_t)at * l->stride_bytes,
                                            .tag = (uint64_t)c->rest[i]};
        const bool reads =
            c->ds.vertex_types == 0 ||
            pst_fill_request_of_type(&c->ds, l->stride_bytes, slot + table[asked].offset, &table[asked]);
        asked += reads;
        if (job->left_at != NULL && reads && c->keep[i] < 0)
            job->left_at[job->left++] = at;
    }
    return asked;
}

/* Copies ids, labels and blocks. The sampler could still change its slot, so what is copied is checked. */
static pst_rc copy_sample(const struct cache *c, const struct pst_minibatch *from,
                          const struct pst_minibatch *mb, char *slot)
{
    const struct pst_minibatch_layout *l = &c->layout;
    memcpy(slot + l->vertices_at, pst_minibatch_at(from, mb->vertices_at),
           (size_t)mb->n[mb->hops] * sizeof(int64_t));
    memcpy(slot + l->labels_at, pst_minibatch_at(from, mb->labels_at), (size_t)mb->n[0] * sizeof(int32_t));
    for (uint32_t h = 0; h < mb->hops; h++) {
        int32_t *indptr = (int32_t *)(void *)(slot + l->indptr_at[h]);
        memcpy(indptr, pst_minibatch_at(from, mb->indptr_at[h]), ((size_t)mb->n[h] + 1) * sizeof *indptr);
        const int64_t edges = indptr[mb->n[h]];
        if (edges < 0 || edges > l->size.edges[h])
            return pst_fail(PST_E_PEER, "the sample changed while this stage copied it: a stage must not "
                                        "change a slot after it has sent it");
        memcpy(slot + l->indices_at[h], pst_minibatch_at(from, mb->indices_at[h]),
               (size_t)edges * sizeof(int32_t));
        if (l->size.weights)
            memcpy(slot + l->weights_at[h], pst_minibatch_at(from, mb->weights_at[h]),
                   (size_t)edges * sizeof(float));
        if (l->size.relations)
            memcpy(slot + l->relations_at[h], pst_minibatch_at(from, mb->relations_at[h]),
                   (size_t)edges * sizeof(int32_t));
    }
    return PST_OK;
}

static int64_t count_near(const struct cache *c, int64_t buffered)
{
    int64_t near = 0;
    for (int64_t i = 0; i < buffered; i++)
        near += c->buffer_row[i] < c->buffer.gpu_n;
    return near;
}

/* What is in memory goes to its place while the drives read the rest. A GPU's kernels do this when the rest
 * has come. Rows of the plan's GPU tier do not pass the bus. */
static void copy_buffered(struct pst_stage *self, struct cache *c, char *slot, int64_t buffered)
{
    const uint64_t stride = c->layout.stride_bytes;
    if (buffered == 0 || pst_cache_stage_on_gpu(c))
        return;
    pst_bus_pass(self, (uint64_t)(buffered - count_near(c, buffered)) * c->row_bytes);
    pst_k_gather(NULL, c->buffer.rows, stride, c->buffer_row, slot + c->layout.features_at, stride,
                 c->buffer_at, buffered, c->row_bytes);
}

static pst_rc send_part(struct pst_stage *self, const struct cache *c, const struct pst_frame *sample,
                        uint32_t part, uint64_t asked)
{
    struct pst_frame frame = {.batch = c->credit.batch,
                              .micro = c->credit.micro,
                              .part = part,
                              .nrefs = 1,
                              .arg = {c->layout.requests_at, asked},
                              .refs = {c->credit.ref}};
    if (sample != NULL)
        frame.flags = PST_LAST_PART | (sample->flags & PST_LAST_MICRO);
    return pst_send(self, c->rows, &frame);
}

/* Fills a slot whose requests are known. With overlap, the drives have begun. */
static pst_rc fill(struct pst_stage *self, struct cache *c, const struct pst_frame *sample,
                   const struct pst_minibatch *from, struct pst_minibatch *mb, char *slot, int64_t buffered,
                   uint64_t asked)
{
    const bool early = pst_overlap(self) && asked > 0;
    const double begin = pst_now();
    pst_rc rc = early ? send_part(self, c, NULL, 0, asked) : PST_OK;
    if (rc != PST_OK)
        return rc;
    rc = copy_sample(c, from, mb, slot);
    if (rc != PST_OK)
        return rc;
    copy_buffered(self, c, slot, buffered);
    pst_minibatch_place(mb, &c->layout);
    mb->feature_dim = (uint32_t)c->ds.feature_dim;
    mb->feature_dtype = (uint32_t)c->ds.features.dtype;
    mb->requests = (uint32_t)asked;
    mb->bytes_used = mb->features_at + (uint64_t)mb->n[mb->hops] * mb->stride_bytes;
    memcpy(slot, mb, sizeof *mb);
    c->count.copy_s += pst_now() - begin;
    return send_part(self, c, sample, early, early ? 0 : asked);
}

pst_rc pst_cache_stage_ask(struct pst_stage *self, struct cache *c, const struct pst_frame *sample)
{
    const struct pst_minibatch *from = NULL;
    struct pst_minibatch mb;
    struct cache_job *job = &c->jobs[(c->first_job + c->asked) % c->njobs];
    char *slot = pst_slot(self, c->credit.ref, NULL);
    if (slot == NULL)
        return PST_E_STATE;
    pst_rc rc = read_sample(self, c, sample, &from, &mb);
    if (rc == PST_OK && pst_cache_stage_on_gpu(c))
        rc = pst_cache_stage_gpu_begin(self, c, job);
    if (rc != PST_OK)
        return rc;
    const double begin = pst_now();
    int64_t buffered = 0;
    const int64_t n = mb.n[mb.hops], left = split(c, pst_minibatch_at(from, mb.vertices_at), n, &buffered);
    const int64_t units = pst_cache_stage_units(c, left);
    const struct pst_policy_batch batch = {
        .batch = sample->batch, .micro = sample->micro, .ids = c->unit, .n = units};
    (void)pst_policy_decide(c->policy, &batch, c->hit, c->keep);
    const uint64_t asked =
        c->line_rows > 1 ? note_pages(c, job, slot, left, units) : note(c, job, slot, left);
    if (pst_cache_stage_on_gpu(c))
        pst_cache_stage_gpu_note(c, job, n, buffered);
    c->count.decide_s += pst_now() - begin;
    job->batch = sample->batch;
    job->micro = sample->micro;
    job->asked = (int64_t)asked;
    c->in_flight += job->asked;
    c->asked++;
    c->count.asked_max = c->asked > c->count.asked_max ? c->asked : c->count.asked_max;
    c->count.batches++;
    c->count.lookups += (uint64_t)n;
    c->count.units += (uint64_t)units;
    c->count.faults += asked * c->row_pages;
    c->count.hits += (uint64_t)job->hits;
    c->count.kept += (uint64_t)job->kept;
    c->count.buffer_hits += (uint64_t)buffered;
    c->count.buffer_gpu_hits += (uint64_t)count_near(c, buffered);
    pst_count_lookups(self, (uint64_t)n, (uint64_t)(job->hits + buffered));
    pst_expect(self, 1);
    rc = fill(self, c, sample, from, &mb, slot, buffered, asked);
    if (rc == PST_OK && c->kind == PST_POLICY_BELADY)
        c->super.held[c->super.nheld++] = sample->refs[0];
    else if (rc == PST_OK)
        rc = pst_release(self, sample->refs[0], false);
    return rc;
}

/* ---- landing -------------------------------------------------------------------------------------- */

pst_rc pst_cache_stage_landed(struct cache *c, const struct pst_frame *frame, struct cache_job **job)
{
    *job = &c->jobs[c->first_job];
    return c->asked > 0 && (*job)->batch == frame->batch && (*job)->micro == frame->micro
               ? PST_OK
               : pst_fail(PST_E_PEER,
                          "micro-batch %u of batch %llu came back from the disk stage, but it is not the "
                          "oldest one that was sent there: link only a disk stage between these two ports",
                          frame->micro, (unsigned long long)frame->batch);
}

void pst_cache_stage_done(struct pst_stage *self, struct cache *c, const struct cache_job *job)
{
    c->first_job = (c->first_job + 1) % c->njobs;
    c->asked--;
    c->in_flight -= job->asked;
    pst_expect(self, -1);
    pst_count(self, 1, 0);
}

pst_rc pst_cache_stage_land(struct pst_stage *self, struct cache *c, const struct pst_frame *frame)
{
    struct cache_job *job;
    char *slot = pst_slot(self, frame->refs[0], NULL);
    if (slot == NULL)
        return PST_E_STATE;
    const pst_rc rc = pst_cache_stage_landed(c, frame, &job);
    if (rc != PST_OK)
        return rc;
    const uint64_t stride = c->layout.stride_bytes;
    char *features = slot + c->layout.features_at;
    const double begin = pst_now();
    pst_k_gather(NULL, c->lines, stride, job->hit_line, features, stride, job->hit_at, job->hits,
                 c->row_bytes);
    if (c->line_rows > 1) {
        const char *pages = slot + c->pages_at;
        pst_k_gather(NULL, pages, stride, job->fresh_from, features, stride, job->fresh_at, job->fresh,
                     c->row_bytes);
        pst_k_gather(NULL, pages, c->line_bytes, job->kept_at, c->lines, c->line_bytes, job->kept_line,
                     job->kept, c->line_bytes);
    } else {
        pst_k_gather(NULL, features, stride, job->kept_at, c->lines, stride, job->kept_line, job->kept,
                     c->row_bytes);
    }
    c->count.copy_s += pst_now() - begin;
    pst_cache_stage_done(self, c, job);
    return pst_send(self, c->batch, frame);
}

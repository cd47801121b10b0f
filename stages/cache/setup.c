/* setup.c: sizes of slots, and the memory of the cache. */
#include <stdlib.h>
#include <string.h>

#include "common/store/dataset/rows.h"
#include "common/util/memory.h"
#include "kernels/kernels.h"
#include "stages/cache/cache.h"
#include "stages/lib/sampling/seeds.h"

/* The number of batches, which the output must say. */
static pst_rc count_batches(struct pst_stage *self, struct cache *c)
{
    struct pst_seeds seeds;
    int part = PST_TRAIN, replicas;
    const int replica = pst_replica(self, &replicas);
    if (c->shuffle != PST_SEEDS_LOCAL) { /* the planner has the batches of an epoch that all samplers have */
        c->batches = (uint64_t)(c->plan.batches / c->plan.epochs);
        return PST_OK;
    }
    pst_rc rc = pst_dataset_choose_split(&c->ds, c->plan.key.split, &part);
    if (rc == PST_OK)
        rc = pst_seeds_init(&seeds, &c->ds, pst_dataset_part_name(part), c->plan.key.batch, pst_seed(self),
                            false);
    if (rc != PST_OK)
        return rc;
    rc = pst_seeds_divide(&seeds, replica, replicas, NULL, &c->ds.cut);
    c->batches = seeds.batches;
    pst_seeds_release(&seeds);
    return rc;
}

/* As large as the sampler's slots, but with rows: both go by the plan and by margin. */
static void size_slots(struct pst_stage *self, struct cache *c)
{
    const struct pst_plan *plan = &c->plan;
    struct pst_minibatch_size base = plan->max, bound = plan->max, size;
    bound.n[0] = base.n[0] = plan->key.batch;
    for (int h = 0; h < bound.hops; h++) {
        bound.n[h + 1] = plan->vertices;
        bound.edges[h] = PST_MINIBATCH_COUNT_MAX;
    }
    pst_minibatch_size_scale(&size, &base, &bound, c->margin);
    pst_minibatch_layout_init(&c->layout, &size, c->ds.stride_bytes);
    c->row_bytes = (uint64_t)c->ds.feature_dim * pst_dtype_bytes(c->ds.features.dtype);
    c->pages_at = c->layout.bytes;
    const uint64_t pages = c->line_rows > 1 ? (uint64_t)size.n[size.hops] * c->line_bytes : 0;
    pst_need(self, c->rows, c->layout.bytes + pages, PST_PAGE);
    if (pst_linked(self, c->cached))
        pst_need(self, c->cached, c->layout.features_bytes, PST_PAGE);
}

static pst_rc check_plan(const struct cache *c, const char *path)
{
    const struct pst_plan_key *key = &c->plan.key;
    if (strcmp(key->dataset, c->ds.digest) != 0)
        return pst_fail(PST_E_ARG, "the plan %s was made for another dataset than %s: make a new plan", path,
                        c->ds.dir);
    const struct pst_ints *all = &c->fanout.all;
    const bool same = (size_t)key->hops == all->count &&
                      memcmp(key->fanout, all->value, all->count * sizeof *key->fanout) == 0;
    return same ? PST_OK
                : pst_fail(PST_E_ARG,
                           "the plan %s was made for another fanout: make a new plan, or restore the fanout",
                           path);
}

pst_rc pst_cache_stage_size(struct pst_stage *self, struct cache *c)
{
    const char *plan = pst_oneshot(self, pst_port(self, "plan"));
    c->sample = pst_port(self, "sample");
    c->rows = pst_port(self, "rows");
    c->landed = pst_port(self, "landed");
    c->batch = pst_port(self, "batch");
    c->cached = pst_port(self, "cached");
    pst_rc rc = pst_dataset_open(&c->ds, pst_dataset_dir(self));
    if (rc == PST_OK)
        rc = pst_rows_join_types(&c->ds);
    if (rc == PST_OK)
        rc = pst_plan_read(&c->plan, plan);
    if (rc == PST_OK)
        rc = check_plan(c, plan);
    if (rc == PST_OK)
        rc = count_batches(self, c);
    if (rc == PST_OK)
        rc = pst_cache_stage_size_pages(c);
    if (rc == PST_OK && c->kind != PST_POLICY_BELADY && c->window > PST_POLICY_WINDOW_MAX)
        rc = pst_fail(PST_E_ARG, "window is %lld; expected at most %d, or policy belady",
                      (long long)c->window, PST_POLICY_WINDOW_MAX);
    if (rc != PST_OK)
        return rc;
    size_slots(self, c);
    const int64_t most = c->layout.size.n[c->layout.size.hops];
    if (most > PST_MINIBATCH_COUNT_MAX / c->line_rows)
        return pst_fail(
            PST_E_LIMIT,
            "page_bytes is %llu, so the pages of a batch of %lld rows could have more than %lld rows: "
            "use smaller pages or batches",
            (unsigned long long)c->page_bytes, (long long)most, (long long)PST_MINIBATCH_COUNT_MAX);
    return PST_OK;
}

/* ---- open ----------------------------------------------------------------------------------------- */

static pst_rc load(struct cache *c, struct pst_cache_rows *rows, const int64_t *vertices, int64_t gpu_n,
                   int64_t n)
{
    return pst_cache_rows_load(rows, &c->device, NULL, pst_feature_file(&c->ds, 0), pst_feature_files(&c->ds),
                               c->ds.vertices, c->ds.stride_bytes, vertices, gpu_n, n);
}

/* The host looks rows up, wherever they are. */
static pst_rc open_buffer(struct cache *c)
{
    const struct pst_plan_tiers *tier = &c->plan.rows;
    pst_rc rc = tier->n > 0 ? load(c, &c->buffer, tier->ids, tier->gpu_n, tier->n) : PST_OK;
    c->buffer_index = c->buffer.index;
    if (rc == PST_OK && tier->n > 0 && pst_cache_stage_on_gpu(c))
        rc = pst_cache_rows_index(tier->ids, tier->gpu_n, tier->n, &c->index_memory, &c->buffer_index);
    return rc;
}

/* The lines. Those of the policy static have rows from the start. */
static pst_rc open_lines(struct pst_stage *self, struct cache *c)
{
    const char *plan = pst_oneshot(self, pst_port(self, "plan"));
    const uint64_t lines = c->cache_bytes / c->line_bytes;
    const int64_t all = (c->ds.vertices + c->line_rows - 1) / c->line_rows;
    const bool belady = c->kind == PST_POLICY_BELADY;
    const bool hot = c->kind == PST_POLICY_STATIC || c->kind == PST_POLICY_LOOKAHEAD;
    int64_t n = 0;
    c->nlines = lines < (uint64_t)all ? (int64_t)lines : all;
    c->nlines = pst_min_i64(c->nlines, PST_POLICY_LINES_MAX / c->line_rows);
    pst_rc rc = hot ? pst_policy_hotness(&c->plan, plan, true, &c->hotness) : PST_OK;
    const struct pst_policy_config config = {.kind = c->kind,
                                             .seed = pst_seed(self),
                                             .lines = c->nlines,
                                             .window = belady ? 0 : (int)c->window,
                                             .super_batch = belady ? (int)c->window + 1 : 0,
                                             .batch_max = c->layout.size.n[c->layout.size.hops],
                                             .hotness = c->hotness,
                                             .vertices = c->ds.vertices};
    if (rc == PST_OK)
        rc = pst_policy_new(&c->policy, &config);
    if (rc != PST_OK || c->nlines == 0)
        return rc;
    const int64_t *vertices = c->kind == PST_POLICY_STATIC ? pst_policy_lines(c->policy, &n) : NULL;
    if (pst_cache_stage_on_gpu(c))
        return pst_cache_stage_gpu_open_lines(c, vertices, n);
    if (vertices != NULL) {
        rc = load(c, &c->static_lines, vertices, n, n);
        c->lines = c->static_lines.rows;
        return rc;
    }
    c->lines = pst_hugepage_alloc((uint64_t)c->nlines * c->line_bytes);
    return c->lines != NULL ? PST_OK
                            : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a cache of %lld lines",
                                       (long long)c->nlines);
}

static void *room(int64_t n, size_t size, bool *all)
{
    void *at = malloc((size_t)n * size);
    *all = *all && at != NULL;
    return at;
}

/* What lines of several rows take, for a batch of n rows. The table is at most half full. */
static void open_pages(struct cache *c, int64_t n, bool *all)
{
    for (c->page_places = 16; c->page_places < 2 * (uint64_t)n;)
        c->page_places *= 2;
    c->pages = calloc(c->page_places, sizeof *c->pages);
    *all = *all && c->pages != NULL;
    c->page = room(n, sizeof *c->page, all);
    c->unit_of = room(n, sizeof *c->unit_of, all);
    c->unit_at = room(n, sizeof *c->unit_at, all);
    c->fault = room(n, sizeof *c->fault, all);
    for (uint32_t i = 0; c->jobs != NULL && i < c->njobs; i++) {
        c->jobs[i].fresh_at = room(n, sizeof(int32_t), all);
        c->jobs[i].fresh_from = room(n, sizeof(int32_t), all);
    }
}

static pst_rc open_jobs(struct pst_stage *self, struct cache *c)
{
    const int64_t n = c->layout.size.n[c->layout.size.hops];
    bool all = true;
    c->njobs = pst_slots(self, c->rows);
    c->jobs = calloc(c->njobs, sizeof *c->jobs);
    c->nwaiting_max = pst_slots(self, c->sample);
    c->waiting = room(c->nwaiting_max, sizeof *c->waiting, &all);
    for (uint32_t i = 0; c->jobs != NULL && i < c->njobs; i++) {
        struct cache_job *j = &c->jobs[i];
        j->hit_at = room(n, sizeof *j->hit_at, &all);
        j->hit_line = room(n, sizeof *j->hit_line, &all);
        j->kept_at = room(n, sizeof *j->kept_at, &all);
        j->kept_line = room(n, sizeof *j->kept_line, &all);
    }
    c->buffer_at = room(n, sizeof *c->buffer_at, &all);
    c->buffer_row = room(n, sizeof *c->buffer_row, &all);
    c->rest_at = room(n, sizeof *c->rest_at, &all);
    c->hit = room(n, sizeof *c->hit, &all);
    c->keep = room(n, sizeof *c->keep, &all);
    c->rest = room(n, sizeof *c->rest, &all);
    c->super.held = room(c->nwaiting_max, sizeof *c->super.held, &all);
    if (c->line_rows > 1)
        open_pages(c, n, &all);
    const bool gpu = pst_cache_stage_on_gpu(c);
    if (gpu)
        c->back = room(c->njobs, sizeof *c->back, &all);
    return all && c->jobs != NULL
               ? gpu ? pst_cache_stage_gpu_open_jobs(c) : PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate what is decided for %u batches",
                          c->njobs);
}

pst_rc pst_cache_stage_open(struct pst_stage *self, struct cache *c)
{
    const double begin = pst_now();
    pst_rc rc = pst_device_open(&c->device, pst_device_name(self));
    if (rc == PST_OK && pst_cache_stage_on_gpu(c))
        rc = pst_cache_stage_gpu_open(self, c);
    if (rc == PST_OK)
        rc = open_buffer(c);
    if (rc == PST_OK)
        rc = open_lines(self, c);
    if (rc == PST_OK)
        rc = open_jobs(self, c);
    if (rc != PST_OK)
        return rc;
    c->super.since = pst_now();
    pst_total(self, c->rows, c->batches * (uint64_t)pst_epochs(self));
    pst_total(self, c->cached, c->batches * (uint64_t)pst_epochs(self));
    pst_log(self,
            "%lld lines in %s memory (%s, window %lld), and %lld rows in the constant buffer, after %.3f s",
            (long long)c->nlines, pst_cache_stage_on_gpu(c) ? "GPU" : "host", pst_policy_name(c->kind),
            (long long)c->window, (long long)c->buffer.n, pst_now() - begin);
    return PST_OK;
}

void pst_cache_stage_release(struct cache *c)
{
    for (uint32_t i = 0; c->jobs != NULL && i < c->njobs; i++) {
        free(c->jobs[i].hit_at);
        free(c->jobs[i].hit_line);
        free(c->jobs[i].kept_at);
        free(c->jobs[i].kept_line);
        free(c->jobs[i].fresh_at);
        free(c->jobs[i].fresh_from);
        free(c->jobs[i].left_at);
    }
    free(c->jobs);
    free(c->back);
    free(c->waiting);
    free(c->super.held);
    free(c->pages);
    free(c->page);
    free(c->unit_of);
    free(c->unit_at);
    free(c->fault);
    free(c->buffer_at);
    free(c->buffer_row);
    free(c->rest_at);
    free(c->hit);
    free(c->keep);
    free(c->rest);
    if (!pst_cache_stage_on_gpu(c) && c->lines != c->static_lines.rows)
        free(c->lines);
    pst_cache_rows_release(&c->static_lines);
    pst_cache_rows_release(&c->buffer);
    free(c->index_memory);
    pst_device_close(&c->device); /* its memory, too */
    pst_policy_free(c->policy);
    free(c->hotness);
    pst_plan_release(&c->plan);
    pst_dataset_close(&c->ds);
}

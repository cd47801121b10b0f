/* load_tiers.c: loads the rows and lists that the plan caches, both at the same time. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "common/util/signals.h"
#include "stages/lib/sampling/sampling_impl.h"

/* The rows that the plan caches. */
static int64_t cached_rows(const struct pst_sampling *s)
{
    return s->planned && !s->bare && s->in.ds.feature_dim > 0 && s->plan.caches.replicas == 0 ? s->plan.rows.n
                                                                                              : 0;
}

/* The lists that the plan caches, if this sampler does not have them all in memory. */
static int64_t cached_lists(const struct pst_sampling *s)
{
    return s->planned && s->params->input.topology == PST_TOPOLOGY_SSD ? s->plan.lists.n : 0;
}

bool pst_sampling_keeps_in_place(const struct pst_sampling *s)
{
    return s->params->in_place && cached_rows(s) > 0 && pst_in_place(s->self, s->port);
}

/* Where the lists begin in memory that instances share: after the rows. */
static uint64_t shared_lists_at(const struct pst_sampling *s)
{
    return pst_align_up(pst_cache_rows_bytes(cached_rows(s), s->in.ds.stride_bytes), PST_PAGE);
}

/* What the plan must agree with, for the caches of a clique. */
static pst_rc share_resident(struct pst_sampling *s)
{
    int replicas;
    uint64_t bytes = 0, gpu_bytes = 0;
    const bool gpu = pst_device_of(s->self, NULL) == PST_DEVICE_CUDA;
    const int replica = pst_replica(s->self, &replicas);
    const bool owned = s->plan.caches.owner != NULL, local = s->params->shuffle == PST_SEEDS_LOCAL;
    if (replicas != s->plan.caches.replicas || owned != local)
        return pst_fail(
            PST_E_ARG,
            "the plan has caches for %d replicas of the sampler with the shuffle %s, but there are %d "
            "with the shuffle %s: make a new plan",
            s->plan.caches.replicas, owned ? "local" : "global", replicas, local ? "local" : "global");
    const char *what = s->bare                                         ? "the output sample"
                       : s->params->edges                              ? "seeds that are edges"
                       : s->params->input.topology == PST_TOPOLOGY_SSD ? "topology ssd"
                       : s->in.algorithm.algorithm->pick == NULL       ? "this sampling algorithm"
                       : gpu && strcmp(s->in.key.algorithm, "uniform") != 0
                           ? "a sampling algorithm other than uniform on GPUs"
                           : NULL;
    if (what != NULL)
        return pst_fail(
            PST_E_UNSUPPORTED,
            "the plan has caches that replicas share, which cannot be used together with %s: change it, "
            "or the planner's policy",
            what);
    const pst_rc rc =
        gpu ? pst_sampling_resident_device_bytes(&s->plan, replica, &s->in.graph, s->in.ds.stride_bytes,
                                                 &gpu_bytes, &bytes)
            : pst_sampling_resident_bytes(&s->plan, replica, &s->in.graph, s->in.ds.stride_bytes, &bytes);
    if (rc == PST_OK && bytes > 0)
        pst_share(s->self, bytes);
    if (rc == PST_OK && gpu)
        pst_share_gpu(s->self, gpu_bytes);
    return rc;
}

/* Several instances on a CPU share their cache, and a cache in which rows stay is shared with the stages that
 * read them there. */
pst_rc pst_sampling_tiers_share(struct pst_sampling *s)
{
    int instances = 1;
    uint64_t lists = 0;
    (void)pst_instance(s->self, &instances);
    if (s->plan.caches.replicas > 0)
        return share_resident(s);
    if ((instances == 1 && !pst_sampling_keeps_in_place(s)) || cached_rows(s) + cached_lists(s) == 0 ||
        strncmp(pst_device_name(s->self), "cuda:", 5) == 0)
        return PST_OK;
    const pst_rc rc = cached_lists(s) == 0 ? PST_OK
                                           : pst_topology_lists_bytes(&s->in.graph, s->plan.lists.ids,
                                                                      s->plan.lists.n, &lists);
    if (rc == PST_OK)
        pst_share(s->self, shared_lists_at(s) + lists);
    return rc;
}

static pst_rc load_rows(struct pst_sampling *s)
{
    const struct pst_dataset *ds = &s->in.ds;
    const struct pst_plan_tiers *rows = &s->plan.rows;
    void *memory = pst_shared(s->self);
    if (cached_rows(s) == 0)
        return PST_OK;
    double begin = pst_now();
    pst_rc rc = PST_OK;
    if (!s->cache_owner)
        pst_cache_rows_borrow(&s->cache, memory, rows->gpu_n, rows->n, ds->stride_bytes);
    else
        rc =
            pst_cache_rows_load(&s->cache, &s->device, memory, pst_feature_file(ds, 0), pst_feature_files(ds),
                                ds->cut.parts > 0 ? ds->features.shape[0] : ds->vertices, ds->stride_bytes,
                                rows->ids, rows->gpu_n, rows->n);
    if (rc != PST_OK)
        return rc;
    s->filler.cache = s->device_filler.cache = s->cache.index;
    s->filler.cache_gpu_rows = s->cache.gpu_n;
    s->filler.cache_rows = s->cache.rows;
    s->filler.cache_n = s->cache.n;
    s->device_filler.tiers =
        (struct pst_twin_tiers){.near = s->cache.rows, .far = s->cache.far, .near_rows = s->cache.gpu_n};
    pst_log(s->self, "%s %lld rows in %.3f s; the plan predicts a hit rate of %.3f",
            s->cache_owner ? "cached" : "mapped", (long long)s->cache.n, pst_now() - begin,
            s->plan.predicted_hit_rate);
    return PST_OK;
}

static pst_rc load_resident(struct pst_sampling *s)
{
    const struct pst_minibatch_size *size = &s->filler.layout.size;
    const double begin = pst_now();
    int64_t edges = 1;
    for (int h = 0; h < size->hops; h++)
        edges = pst_max_i64(edges, size->edges[h]);
    s->cache_owner = pst_instance(s->self, NULL) == 0;
    const bool gpu = pst_device_is_cuda(&s->device);
    const pst_rc rc = gpu ? pst_sampling_resident_device_load(
                                &s->resident_device, &s->resident, s->self, s->cache_owner, &s->device,
                                &s->plan, &s->in.ds, &s->in.graph, s->in.key.replace, size->n[size->hops])
                          : pst_sampling_resident_load(&s->resident, s->self, s->cache_owner, &s->plan,
                                                       &s->in.ds, &s->in.graph, size->n[size->hops], edges);
    if (rc != PST_OK)
        return rc;
    const struct pst_sampling_resident *r = &s->resident;
    s->cache = (struct pst_cache_rows){.n = r->rows_first[1] +
                                            (pst_replica(s->self, NULL) == 0 ? s->plan.rows.n : 0),
                                       .gpu_n = r->rows_first[1],
                                       .borrowed = true};
    s->filler.resident = gpu ? NULL : &s->resident;
    s->filler.cache = r->rows_index;
    s->filler.cache_gpu_rows = r->rows_first[r->members];
    s->device_filler.resident = gpu ? &s->resident_device : NULL;
    s->device_filler.cache = s->resident_device.rows_index;
    pst_log(
        s->self,
        "%lld rows and %lld lists of its own, %lld and %lld of a clique of %d, %lld rows in the CPU tier, in "
        "%.3f s; the plan predicts a hit rate of %.3f",
        (long long)r->rows_first[1], (long long)r->lists_first[1], (long long)r->rows_first[r->members],
        (long long)r->lists_first[r->members], r->members, (long long)s->plan.rows.n, pst_now() - begin,
        s->plan.predicted_hit_rate);
    return PST_OK;
}

/* A draft that never waits: it needs no slots for lists. */
pst_rc pst_sampling_clique_open(struct pst_sampling *s)
{
    struct pst_topology_array indptr, indices;
    if (s->resident.members == 0)
        return PST_OK;
    pst_topology_arrays(&s->in.ds, &indptr, &indices);
    s->resident_draft = calloc(1, sizeof *s->resident_draft);
    return s->resident_draft != NULL
               ? pst_sampling_draft_init(s->resident_draft, &s->filler, &indptr, &indices, &s->cached_lists,
                                         0, &s->resident_counts)
               : pst_fail(PST_E_NOMEM, "out of memory: cannot sample from shared caches");
}

pst_rc pst_sampling_clique_fill(struct pst_sampling *s, const struct pst_fill_job *job, void *slot,
                                struct pst_fill_result *result)
{
    bool done = false;
    const pst_rc rc =
        pst_sampling_draft_begin(s->resident_draft, job, slot, pst_sampling_send_part, &s->now, &done);
    assert(rc != PST_OK || done);
    *result = s->resident_draft->result;
    return rc;
}

/* A thread loads lists while the stage's own thread loads rows. So the drive is busy while one of them sorts
 * ids or copies rows. */
struct lists_load {
    struct pst_sampling *s;
    char *memory; /* of all instances; NULL: the lists take memory of their own */
    pthread_t thread;
    bool begun;
    double seconds;
    pst_rc rc;
    char error[1024];
};

static void *load_lists(void *context)
{
    struct lists_load *l = context;
    struct pst_sampling *s = l->s;
    const struct pst_plan_tiers *lists = &s->plan.lists;
    const double begin = pst_now();
    l->rc = pst_topology_lists_load(&s->cached_lists, l->memory, &s->in.graph, &s->in.ds.indices, lists->ids,
                                    lists->gpu_n, lists->n);
    if (l->rc != PST_OK)
        (void)snprintf(l->error, sizeof l->error, "%s", pst_error_text());
    l->seconds = pst_now() - begin;
    return NULL;
}

static pst_rc begin_lists(struct lists_load *l, struct pst_sampling *s)
{
    const struct pst_plan_tiers *lists = &s->plan.lists;
    *l = (struct lists_load){.s = s, .memory = pst_shared(s->self)};
    if (cached_lists(s) == 0)
        return PST_OK;
    if (l->memory != NULL)
        l->memory += shared_lists_at(s);
    if (!s->cache_owner) {
        pst_topology_lists_borrow(&s->cached_lists, l->memory, &s->in.graph, lists->gpu_n, lists->n);
        return PST_OK;
    }
    errno = pst_signals_thread(&l->thread, load_lists, l);
    l->begun = errno == 0;
    return l->begun ? PST_OK : pst_fail_errno("cannot start a thread that loads lists of neighbours");
}

/* Waits for the thread. rc: what loading the rows returned. If both failed, this error is kept. */
static pst_rc end_lists(struct lists_load *l, pst_rc rc)
{
    if (l->begun)
        (void)pthread_join(l->thread, NULL);
    if (rc == PST_OK && l->rc != PST_OK)
        rc = pst_fail(l->rc, "%s", l->error);
    if (rc == PST_OK && cached_lists(l->s) > 0)
        pst_log(l->s->self, "%s %lld lists of neighbours in %.3f s", l->begun ? "cached" : "mapped",
                (long long)l->s->plan.lists.n, l->seconds);
    return rc;
}

pst_rc pst_sampling_tiers_load(struct pst_sampling *s)
{
    struct lists_load lists;
    s->cache_owner = pst_shared(s->self) == NULL || pst_instance(s->self, NULL) == 0;
    s->filler.pass_bus = pst_bus_pass;
    s->filler.stage = s->self;
    pst_rc rc = begin_lists(&lists, s);
    if (rc == PST_OK)
        rc = s->plan.caches.replicas > 0 ? load_resident(s) : load_rows(s);
    rc = end_lists(&lists, rc);
    pst_plan_release(&s->plan);
    return rc;
}

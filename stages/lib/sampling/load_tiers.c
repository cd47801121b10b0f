/* load_tiers.c: loads the rows and lists that the plan caches. */
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/sampling/sampling_impl.h"

/* The rows that the plan caches. */
static int64_t cached_rows(const struct pst_sampling *s)
{
    return s->planned && !s->bare && s->in.ds.feature_dim > 0 ? s->plan.rows.n : 0;
}

/* The lists that the plan caches, if this sampler does not have them all in memory. */
static int64_t cached_lists(const struct pst_sampling *s)
{
    return s->planned && s->params->input.topology == PST_TOPOLOGY_SSD ? s->plan.lists.n : 0;
}

/* Where the lists begin in memory that instances share: after the rows. */
static uint64_t shared_lists_at(const struct pst_sampling *s)
{
    return pst_align_up(pst_cache_rows_bytes(cached_rows(s), s->in.ds.stride_bytes), PST_PAGE);
}

/* Several instances on a CPU share their cache. One alone keeps it in memory of its own, which can have huge
 * pages. */
pst_rc pst_sampling_tiers_share(struct pst_sampling *s)
{
    int instances = 1;
    uint64_t lists = 0;
    (void)pst_instance(s->self, &instances);
    if (instances == 1 || cached_rows(s) + cached_lists(s) == 0 ||
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
                                ds->vertices, ds->stride_bytes, rows->ids, rows->gpu_n, rows->n);
    if (rc != PST_OK)
        return rc;
    s->filler.cache = s->device_filler.cache = s->cache.index;
    s->filler.cache_gpu_rows = s->cache.gpu_n;
    s->filler.cache_rows = s->cache.rows;
    s->device_filler.tiers =
        (struct pst_twin_tiers){.near = s->cache.rows, .far = s->cache.far, .near_rows = s->cache.gpu_n};
    pst_log(s->self, "%s %lld rows in %.3f s; the plan predicts a hit rate of %.3f",
            s->cache_owner ? "cached" : "mapped", (long long)s->cache.n, pst_now() - begin,
            s->plan.predicted_hit_rate);
    return PST_OK;
}

static pst_rc load_lists(struct pst_sampling *s)
{
    const struct pst_plan_tiers *lists = &s->plan.lists;
    char *memory = pst_shared(s->self);
    if (cached_lists(s) == 0)
        return PST_OK;
    if (memory != NULL)
        memory += shared_lists_at(s);
    const double begin = pst_now();
    pst_rc rc = PST_OK;
    if (!s->cache_owner)
        pst_topology_lists_borrow(&s->cached_lists, memory, &s->in.graph, lists->gpu_n, lists->n);
    else
        rc = pst_topology_lists_load(&s->cached_lists, memory, &s->in.graph, lists->ids, lists->gpu_n,
                                     lists->n);
    if (rc == PST_OK)
        pst_log(s->self, "%s %lld lists of neighbours in %.3f s", s->cache_owner ? "cached" : "mapped",
                (long long)lists->n, pst_now() - begin);
    return rc;
}

pst_rc pst_sampling_tiers_load(struct pst_sampling *s)
{
    s->cache_owner = pst_shared(s->self) == NULL || pst_instance(s->self, NULL) == 0;
    s->filler.pass_bus = pst_bus_pass;
    s->filler.stage = s->self;
    pst_rc rc = load_rows(s);
    if (rc == PST_OK)
        rc = load_lists(s);
    pst_plan_release(&s->plan);
    return rc;
}

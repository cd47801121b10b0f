/* clique_device.c: loads the caches of a clique into GPUs, and puts the kernels that read them on the queue.
 */
#include "stages/lib/sampling/resident/clique_device.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/stage.h"
#include "common/store/dataset/rows.h"
#include "common/store/store.h"
#include "stages/lib/topology/lists_device.h"
#include "stages/lib/topology/topology.h"

/* Counts: rows of each part, then edges of each member and of the host, and lines. */
#define EDGES_AT PST_K_PARTS_MAX
#define COUNTS (2 * PST_K_PARTS_MAX + 2)

_Static_assert(PST_K_PARTS_MAX >= PST_SAMPLING_RESIDENT_PARTS, "kernels take a clique of all replicas");

/* ---- memory of a GPU: rows, lists. Host memory of replica 0: CPU tier, graph ------------------------ */

static uint64_t lists_at(const struct pst_plan *plan, int replica, uint64_t stride)
{
    const int64_t *ids;
    return pst_align_up((uint64_t)pst_sampling_resident_rows_of(plan, replica, &ids) * stride, PST_PAGE);
}

static uint64_t graph_at(const struct pst_plan *plan, uint64_t stride)
{
    return pst_align_up(pst_cache_rows_bytes(plan->rows.n, stride), PST_PAGE);
}

pst_rc pst_sampling_resident_device_bytes(const struct pst_plan *plan, int replica,
                                          const struct pst_csc *graph, uint64_t stride, uint64_t *gpu,
                                          uint64_t *host)
{
    const int64_t *ids;
    uint64_t lists = 0;
    const int64_t n = pst_sampling_resident_lists_of(plan, replica, &ids);
    const pst_rc rc = pst_topology_lists_device_bytes(graph, ids, n, &lists);
    *gpu = lists_at(plan, replica, stride) + lists;
    *host = replica == 0 ? graph_at(plan, stride) + pst_topology_copy_bytes(graph) : 0;
    return rc;
}

/* ---- loading ---------------------------------------------------------------------------------------- */

static pst_rc fill_gpu(struct pst_sampling_resident_device *d, const struct pst_plan *plan, int replica,
                       const struct pst_dataset *ds, const struct pst_csc *graph, char *memory)
{
    const int64_t *ids;
    int64_t n = pst_sampling_resident_rows_of(plan, replica, &ids);
    const pst_rc rc = pst_cache_rows_write(d->device, memory, pst_feature_file(ds, 0), pst_feature_files(ds),
                                           ds->vertices, ds->stride_bytes, ids, n);
    n = pst_sampling_resident_lists_of(plan, replica, &ids);
    return rc == PST_OK ? pst_topology_lists_device_write(
                              d->device, memory + lists_at(plan, replica, ds->stride_bytes), graph, ids, n)
                        : rc;
}

static pst_rc fill_host(const struct pst_plan *plan, const struct pst_dataset *ds,
                        const struct pst_csc *graph, char *memory)
{
    struct pst_cache_rows rows;
    pst_topology_copy(graph, memory + graph_at(plan, ds->stride_bytes));
    return pst_cache_rows_load(&rows, NULL, memory, pst_feature_file(ds, 0), pst_feature_files(ds),
                               ds->vertices, ds->stride_bytes, plan->rows.ids, 0, plan->rows.n);
}

static pst_rc map_host(struct pst_sampling_resident_device *d, const struct pst_stage *self,
                       const struct pst_plan *plan, const struct pst_csc *graph, uint64_t stride)
{
    const char *host = pst_shared_of(self, 0);
    if (host == NULL)
        return pst_fail(PST_E_STATE,
                        "replica 0 of the sampler belongs to another rank, so its CPU tier and its graph "
                        "cannot be read: with several ranks, use another policy of the planner");
    d->rows.rows[d->clique->members] = host;
    d->lists.graph = pst_topology_copied(graph, host + graph_at(plan, stride));
    return PST_OK;
}

static pst_rc map_members(struct pst_sampling_resident_device *d, struct pst_stage *self,
                          const struct pst_plan *plan, uint64_t stride)
{
    const struct pst_sampling_resident *r = d->clique;
    d->rows.n = r->members + 1;
    d->lists.n = r->members;
    d->lists.line_bytes = r->line_bytes;
    memcpy(d->rows.first, r->rows_first, sizeof *r->rows_first * (size_t)(r->members + 2));
    memcpy(d->lists.first, r->lists_first, sizeof *r->lists_first * (size_t)(r->members + 1));
    for (int k = 0; k < r->members; k++) {
        const int replica = r->replica[k];
        const void *memory = NULL;
        const pst_rc rc = pst_shared_gpu_of(self, replica, &memory);
        if (rc != PST_OK)
            return rc;
        const char *lists = (const char *)memory + lists_at(plan, replica, stride);
        d->rows.rows[k] = memory;
        d->lists.at[k] = (const int64_t *)(const void *)lists;
        d->lists.entries[k] =
            lists + pst_topology_lists_device_entries_at(r->lists_first[k + 1] - r->lists_first[k]);
    }
    return PST_OK;
}

static pst_rc take(struct pst_device *device, uint64_t n, size_t size, const char *what, void **at)
{
    return pst_device_take(device, PST_TWIN_MEMORY_DEVICE, n * size, what, at);
}

static pst_rc make_index(struct pst_sampling_resident_device *d, const struct pst_plan *plan, bool rows,
                         const struct pst_cache **index)
{
    struct pst_device *device = d->device;
    int64_t *ids, n;
    void *memory = NULL, *there = NULL;
    pst_rc rc = pst_sampling_resident_ids(d->clique, plan, rows, &ids, &n);
    if (rc == PST_OK)
        rc = take(device, 1, device->twin->cache_bytes(n), "the index of a clique's caches", &memory);
    if (rc == PST_OK)
        rc = take(device, (uint64_t)n, sizeof *ids, "the ids of a clique's caches", &there);
    if (rc == PST_OK) {
        (void)device->twin->copy(device->q, there, ids, (uint64_t)n * sizeof *ids);
        rc = pst_device_wait(device);
    }
    if (rc == PST_OK) {
        *index = device->twin->cache_init(memory, there, n);
        rc = *index != NULL
                 ? PST_OK
                 : pst_fail(PST_E_IO, "%s: cannot create the index of a clique's caches", device->name);
    }
    pst_device_give(device, there);
    free(ids);
    return rc;
}

static pst_rc take_scratch(struct pst_sampling_resident_device *d, uint64_t vertices)
{
    static const char what[] = "the lists of a hop's destinations";
    void *list = NULL, *source = NULL, *begin = NULL, *degree = NULL, *counts = NULL, *there = NULL;
    pst_rc rc = take(d->device, vertices, sizeof *d->list, what, &list);
    if (rc == PST_OK)
        rc = take(d->device, vertices, sizeof *d->source, what, &source);
    if (rc == PST_OK)
        rc = take(d->device, vertices, sizeof *d->begin, what, &begin);
    if (rc == PST_OK)
        rc = take(d->device, vertices, sizeof *d->degree, what, &degree);
    if (rc == PST_OK)
        rc = take(d->device, COUNTS, sizeof *d->counts, "what is read of a clique's caches", &counts);
    if (rc == PST_OK)
        rc = pst_device_take(d->device, PST_TWIN_MEMORY_PINNED,
                             PST_SAMPLING_RESIDENT_LANES * COUNTS * sizeof *d->counts,
                             "what is read of a clique's caches", &there);
    d->list = list;
    d->source = source;
    d->begin = begin;
    d->degree = degree;
    d->counts = counts;
    d->counts_there = there;
    return rc;
}

pst_rc pst_sampling_resident_device_load(struct pst_sampling_resident_device *d,
                                         struct pst_sampling_resident *clique, struct pst_stage *self,
                                         bool owner, struct pst_device *device, const struct pst_plan *plan,
                                         const struct pst_dataset *ds, const struct pst_csc *graph,
                                         bool replace, int64_t vertices_max)
{
    const int own = pst_replica(self, NULL);
    *d = (struct pst_sampling_resident_device){.device = device, .clique = clique, .replace = replace};
    pst_sampling_resident_begin(clique, plan, own);
    pst_rc rc = owner ? fill_gpu(d, plan, own, ds, graph, pst_shared_gpu(self)) : PST_OK;
    if (rc == PST_OK && owner && own == 0)
        rc = fill_host(plan, ds, graph, pst_shared(self));
    if (rc == PST_OK)
        rc = map_members(d, self, plan, ds->stride_bytes);
    if (rc == PST_OK)
        rc = map_host(d, self, plan, graph, ds->stride_bytes);
    if (rc == PST_OK)
        rc = make_index(d, plan, true, &d->rows_index);
    if (rc == PST_OK)
        rc = make_index(d, plan, false, &d->lists_index);
    return rc == PST_OK ? take_scratch(d, (uint64_t)vertices_max) : rc;
}

void pst_sampling_resident_device_release(struct pst_sampling_resident_device *d)
{
    void *const taken[] = {(void *)(uintptr_t)d->rows_index,
                           (void *)(uintptr_t)d->lists_index,
                           d->list,
                           d->source,
                           d->begin,
                           d->degree,
                           d->counts,
                           d->counts_there};
    for (size_t i = 0; d->device != NULL && i < sizeof taken / sizeof *taken; i++)
        pst_device_give(d->device, taken[i]);
    *d = (struct pst_sampling_resident_device){.device = NULL};
}

/* ---- reading ---------------------------------------------------------------------------------------- */

void pst_sampling_resident_device_begin(struct pst_sampling_resident_device *d)
{
    (void)d->device->twin->fill(d->device->q, d->counts, 0, COUNTS * sizeof *d->counts);
}

void pst_sampling_resident_device_draw(struct pst_sampling_resident_device *d,
                                       const struct pst_sample_key *key, int fanout, const int64_t *vertices,
                                       struct pst_twin_n n, int32_t *indptr, int64_t *out, int64_t capacity,
                                       int64_t *total)
{
    const struct pst_twin *twin = d->device->twin;
    struct pst_queue *q = d->device->q;
    twin->find_n(q, d->lists_index, vertices, n, d->list);
    (void)twin->find_lists_n(q, &d->lists, vertices, d->list, n, d->source, d->begin, d->degree);
    (void)twin->pick_n(q, key, vertices, d->degree, n, fanout, d->replace, indptr, out, capacity, total);
    (void)twin->read_lists_n(q, &d->lists, vertices, d->source, d->begin, d->degree, n, fanout, d->replace,
                             indptr, out, d->counts + EDGES_AT);
}

void pst_sampling_resident_device_count(struct pst_sampling_resident_device *d, int lane, const int32_t *row,
                                        struct pst_twin_n n)
{
    d->device->twin->count_parts_n(d->device->q, &d->rows, row, n, d->counts);
    (void)d->device->twin->copy(d->device->q, d->counts_there + lane * COUNTS, d->counts,
                                COUNTS * sizeof *d->counts);
}

void pst_sampling_resident_device_gather(struct pst_sampling_resident_device *d, const int32_t *row,
                                         const int32_t *pos, struct pst_twin_n n, char *to, uint64_t stride,
                                         uint64_t row_bytes)
{
    d->device->twin->gather_parts_n(d->device->q, &d->rows, stride, row, to, stride, pos, n, row_bytes);
}

void pst_sampling_resident_device_end(struct pst_sampling_resident_device *d, int lane, uint64_t rows_disk)
{
    struct pst_sampling_resident *r = d->clique;
    const int64_t *rows = d->counts_there + lane * COUNTS, *edges = rows + EDGES_AT;
    for (int k = 0; k < r->members; k++) {
        r->open.rows[k] = (uint64_t)rows[k];
        r->open.edges[k] = (uint64_t)edges[k];
    }
    r->open.rows_host = (uint64_t)rows[r->members];
    r->open.rows_disk = rows_disk;
    r->open.edges_host = (uint64_t)edges[r->members];
    r->open.lines_host = (uint64_t)edges[r->members + 1];
    pst_sampling_resident_end(r, true);
}

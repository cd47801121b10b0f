/* hot.c: feature rows of other parts that this rank keeps in memory, because its plan says that batches need
 * them often. They are fetched once, before the first batch, by the rounds that bring the rows of slots. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/vertices.h"
#include "common/util/memory.h"
#include "kernels/kernels.h"
#include "stages/lib/plan/plan.h"
#include "stages/remote/remote.h"

#define PIECE_BYTES ((uint64_t)4 << 20) /* of rows that a round fetches: the owners need as much memory */

/* Rows that a round fetches. */
static int64_t piece_of(const struct pst_remote *r)
{
    return pst_max_i64(1, (int64_t)(PIECE_BYTES / r->ds.stride_bytes));
}

/* ---- which ----------------------------------------------------------------------------------------- */

/* The ids move from the plan to *hot. */
static pst_rc take_ids(struct pst_remote *r, struct pst_plan *plan)
{
    struct pst_remote_hot *hot = &r->hot;
    const struct pst_array *own = &r->ds.features;
    pst_plan_keep(&plan->rows, own->first_row, own->first_row + own->shape[0], false);
    hot->n = plan->rows.n;
    hot->ids = plan->rows.ids;
    plan->rows = (struct pst_plan_tiers){.n = 0};
    if (hot->n > INT32_MAX)
        return pst_fail(PST_E_LIMIT, "the plan caches %" PRId64 " rows of other parts: expected at most %d",
                        hot->n, INT32_MAX);
    pst_vertices_sort(hot->ids, hot->n);
    for (int64_t i = 1; i < hot->n; i++)
        if (hot->ids[i] == hot->ids[i - 1])
            return pst_fail(PST_E_FORMAT,
                            "the plan caches the features of vertex %" PRId64 " twice: make a new plan",
                            hot->ids[i]);
    for (int64_t i = 0; i < hot->n; i++)
        r->counts.cached[pst_remote_owner_of(r, (uint64_t)hot->ids[i])]++;
    return PST_OK;
}

pst_rc pst_remote_hot_read(struct pst_remote *r, const char *path)
{
    struct pst_plan plan;
    if (path == NULL || r->ds.cut.parts == 0) /* a whole dataset has no other parts */
        return PST_OK;
    pst_rc rc = pst_plan_read(&plan, path);
    if (rc != PST_OK)
        return rc;
    if (strcmp(plan.key.dataset, r->ds.digest) != 0 || plan.vertices != r->ds.vertices)
        rc = pst_fail(PST_E_ARG,
                      "the plan %s was made for the dataset %s with %" PRId64
                      " vertices, but this is %s with %" PRId64 ": make a new plan",
                      path, plan.key.dataset, plan.vertices, r->ds.digest, r->ds.vertices);
    else
        rc = take_ids(r, &plan);
    r->hot.planned = true;
    pst_plan_release(&plan);
    return rc;
}

/* ---- fetching --------------------------------------------------------------------------------------- */

static uint64_t table_at(const struct pst_remote *r)
{
    return pst_align_up((uint64_t)r->hot.n * r->ds.stride_bytes, PST_PAGE);
}

static uint64_t memory_bytes(const struct pst_remote *r)
{
    const int64_t piece = pst_min_i64(r->hot.n, piece_of(r));
    return table_at(r) + (uint64_t)piece * sizeof(struct pst_request);
}

pst_rc pst_remote_hot_open(struct pst_remote *r)
{
    struct pst_remote_hot *hot = &r->hot;
    if (hot->n == 0)
        return PST_OK;
    hot->rows = pst_hugepage_alloc(memory_bytes(r));
    hot->index_memory = pst_hugepage_alloc(pst_k_cache_bytes(hot->n));
    return hot->rows != NULL && hot->index_memory != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM,
                          "out of memory: cannot cache %" PRId64 " rows of other parts, of %" PRIu64
                          " bytes each; set a smaller cpu_cache for the planner",
                          hot->n, r->ds.stride_bytes);
}

/* Requests for n rows from place `first` on, as those of a slot. */
static void put_requests(struct pst_remote *r, int64_t first, int64_t n)
{
    struct pst_request *table = (struct pst_request *)(void *)(r->hot.rows + table_at(r));
    for (int64_t i = 0; i < n; i++)
        table[i] = (struct pst_request){.op = PST_REQUEST_READ,
                                        .array = PST_ARRAY_FEATURES,
                                        .rows = 1,
                                        .row = (uint64_t)r->hot.ids[first + i],
                                        .offset = (uint64_t)(first + i) * r->ds.stride_bytes};
    r->part[0].at = table_at(r);
    r->part[0].n = (uint64_t)n;
    r->parts = n > 0;
}

pst_rc pst_remote_hot_fetch(struct pst_remote *r)
{
    struct pst_remote_hot *hot = &r->hot;
    const uint64_t bytes = hot->n > 0 ? memory_bytes(r) : 0;
    bool all = !hot->planned || r->ranks == 1;
    pst_rc rc = PST_OK;
    for (int64_t at = 0; !all && rc == PST_OK;) {
        const int64_t n = pst_min_i64(piece_of(r), hot->n - at);
        put_requests(r, at, n);
        at += n;
        rc = pst_remote_round(r, hot->rows, bytes, at == hot->n, &all);
    }
    r->parts = 0;
    if (rc == PST_OK && hot->n > 0)
        hot->index = pst_k_cache_init(hot->index_memory, hot->ids, hot->n);
    return rc == PST_OK ? rc : pst_wrap(rc, "cannot fetch the cached rows of other parts");
}

/* ---- reading ---------------------------------------------------------------------------------------- */

pst_rc pst_remote_hot_take(struct pst_remote *r, char *slot, const struct pst_request *table, int64_t n,
                           const int32_t **left, int64_t *misses)
{
    struct pst_remote_hot *hot = &r->hot;
    const uint64_t stride = r->ds.stride_bytes;
    int64_t hits = 0;
    *left = NULL;
    *misses = n;
    if (hot->index == NULL || n == 0)
        return PST_OK;
    pst_rc rc = pst_memory_need(&hot->asked, (uint64_t)n * sizeof(int64_t), "look up cached rows");
    if (rc == PST_OK)
        rc = pst_memory_need(&hot->places, 3 * (uint64_t)n * sizeof(int32_t), "look up cached rows");
    if (rc != PST_OK)
        return rc;
    int64_t *ids = (int64_t *)(void *)hot->asked.at;
    int32_t *hit_pos = (int32_t *)(void *)hot->places.at, *hit_row = hit_pos + n, *miss_pos = hit_row + n;
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int64_t)table[i].row;
    pst_k_lookup(NULL, hot->index, ids, n, hit_pos, hit_row, &hits, miss_pos, misses);
    for (int64_t i = 0; i < hits; i++) {
        memcpy(slot + table[hit_pos[i]].offset, hot->rows + (uint64_t)hit_row[i] * stride, stride);
        r->counts.hits[pst_remote_owner_of(r, (uint64_t)ids[hit_pos[i]])]++;
    }
    *left = miss_pos;
    return PST_OK;
}

void pst_remote_hot_release(struct pst_remote_hot *hot)
{
    free(hot->ids);
    free(hot->rows);
    free(hot->index_memory);
    free(hot->asked.at);
    free(hot->places.at);
    *hot = (struct pst_remote_hot){.n = 0};
}

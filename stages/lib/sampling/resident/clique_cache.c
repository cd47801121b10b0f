/* clique_cache.c: loads and maps the caches of a clique, and reads them. */
#include "stages/lib/sampling/resident/clique_cache.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/stage.h"
#include "common/store/dataset/rows.h"
#include "common/store/store.h"
#include "common/store/vertices.h"

/* ---- memory: rows, lists, and with replica 0 the CPU tier ------------------------------------------- */

int64_t pst_sampling_resident_rows_of(const struct pst_plan *plan, int replica, const int64_t **ids)
{
    const struct pst_plan_caches *c = &plan->caches;
    *ids = c->rows.ids + c->rows_begin[replica];
    return c->rows_begin[replica + 1] - c->rows_begin[replica];
}

int64_t pst_sampling_resident_lists_of(const struct pst_plan *plan, int replica, const int64_t **ids)
{
    const struct pst_plan_caches *c = &plan->caches;
    *ids = c->lists.ids + c->lists_begin[replica];
    return c->lists_begin[replica + 1] - c->lists_begin[replica];
}

static uint64_t lists_at(const struct pst_plan *plan, int replica, uint64_t stride)
{
    const int64_t *ids;
    return pst_align_up(pst_cache_rows_bytes(pst_sampling_resident_rows_of(plan, replica, &ids), stride),
                        PST_PAGE);
}

static pst_rc host_at(const struct pst_plan *plan, int replica, const struct pst_csc *graph, uint64_t stride,
                      uint64_t *at)
{
    const int64_t *ids;
    uint64_t lists = 0;
    const int64_t n = pst_sampling_resident_lists_of(plan, replica, &ids);
    const pst_rc rc = pst_topology_lists_bytes(graph, ids, n, &lists);
    *at = pst_align_up(lists_at(plan, replica, stride) + lists, PST_PAGE);
    return rc;
}

pst_rc pst_sampling_resident_bytes(const struct pst_plan *plan, int replica, const struct pst_csc *graph,
                                   uint64_t stride, uint64_t *bytes)
{
    const pst_rc rc = host_at(plan, replica, graph, stride, bytes);
    *bytes += replica == 0 ? pst_cache_rows_bytes(plan->rows.n, stride) : 0;
    return rc;
}

/* ---- loading ---------------------------------------------------------------------------------------- */

/* Fills this replica's memory. */
static pst_rc fill(const struct pst_plan *plan, int replica, const struct pst_dataset *ds,
                   const struct pst_csc *graph, char *memory)
{
    struct pst_cache_rows rows;
    struct pst_topology_lists lists;
    const int64_t *ids;
    uint64_t at = 0;
    int64_t n = pst_sampling_resident_rows_of(plan, replica, &ids);
    pst_rc rc = pst_cache_rows_load(&rows, NULL, memory, pst_feature_file(ds, 0), pst_feature_files(ds),
                                    ds->vertices, ds->stride_bytes, ids, 0, n);
    n = pst_sampling_resident_lists_of(plan, replica, &ids);
    if (rc == PST_OK)
        rc = pst_topology_lists_load(&lists, memory + lists_at(plan, replica, ds->stride_bytes), graph, NULL,
                                     ids, 0, n);
    if (rc == PST_OK && replica == 0 && plan->rows.n > 0)
        rc = host_at(plan, replica, graph, ds->stride_bytes, &at);
    return rc == PST_OK && replica == 0 && plan->rows.n > 0
               ? pst_cache_rows_load(&rows, NULL, memory + at, pst_feature_file(ds, 0), pst_feature_files(ds),
                                     ds->vertices, ds->stride_bytes, plan->rows.ids, 0, plan->rows.n)
               : rc;
}

/* The memory that a replica shares. It is read after the start, when its owner has filled it. */
static pst_rc shared_by(const struct pst_stage *self, int replica, char **memory)
{
    *memory = (char *)(uintptr_t)pst_shared_of(self, replica);
    return *memory != NULL ? PST_OK
                           : pst_fail(PST_E_STATE,
                                      "replica %d of the sampler belongs to another rank, so its cache "
                                      "cannot be read: with several ranks, use another policy of the planner",
                                      replica);
}

static pst_rc map_members(struct pst_sampling_resident *r, const struct pst_stage *self,
                          const struct pst_plan *plan, const struct pst_csc *graph, uint64_t stride)
{
    const int64_t *ids;
    char *memory = NULL;
    uint64_t at = 0;
    pst_rc rc = PST_OK;
    for (int k = 0; k < r->members && rc == PST_OK; k++) {
        rc = shared_by(self, r->replica[k], &memory);
        if (rc != PST_OK)
            return rc;
        const int64_t rows = pst_sampling_resident_rows_of(plan, r->replica[k], &ids),
                      lists = pst_sampling_resident_lists_of(plan, r->replica[k], &ids);
        pst_cache_rows_borrow(&r->rows[k], memory, 0, rows, stride);
        pst_topology_lists_borrow(&r->lists[k], memory + lists_at(plan, r->replica[k], stride), graph, 0,
                                  lists);
    }
    rc = plan->rows.n > 0 ? shared_by(self, 0, &memory) : PST_OK;
    if (rc == PST_OK && plan->rows.n > 0)
        rc = host_at(plan, 0, graph, stride, &at);
    if (rc == PST_OK && plan->rows.n > 0)
        pst_cache_rows_borrow(&r->rows[r->members], memory + at, 0, plan->rows.n, stride);
    return rc;
}

static int ascending(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static pst_rc no_index(const struct pst_sampling_resident *r, int64_t n)
{
    return pst_fail(PST_E_NOMEM, "out of memory: cannot index %lld cached entries of %d replicas",
                    (long long)n, r->members);
}

pst_rc pst_sampling_resident_ids(const struct pst_sampling_resident *r, const struct pst_plan *plan,
                                 bool rows, int64_t **out, int64_t *n)
{
    *n = rows ? r->rows_first[r->members + 1] : r->lists_first[r->members];
    int64_t *ids = *n <= INT32_MAX ? malloc((size_t)*n * sizeof *ids + 1) : NULL, at = 0;
    const int64_t *of;
    *out = ids;
    if (ids == NULL)
        return no_index(r, *n);
    for (int k = 0; k < r->members; k++) {
        const int64_t some = rows ? pst_sampling_resident_rows_of(plan, r->replica[k], &of)
                                  : pst_sampling_resident_lists_of(plan, r->replica[k], &of);
        memcpy(ids + at, of, (size_t)some * sizeof *ids);
        at += some;
    }
    if (rows && plan->rows.n > 0) {
        memcpy(ids + at, plan->rows.ids, (size_t)plan->rows.n * sizeof *ids);
        pst_vertices_sort(ids + at, plan->rows.n);
    }
    return PST_OK;
}

static pst_rc make_index(const struct pst_sampling_resident *r, const struct pst_plan *plan, bool rows,
                         void **memory, struct pst_cache **index)
{
    int64_t *ids, n;
    const pst_rc rc = pst_sampling_resident_ids(r, plan, rows, &ids, &n);
    if (rc != PST_OK)
        return rc;
    *memory = aligned_alloc(PST_CACHE_LINE, pst_align_up(pst_k_cache_bytes(n), PST_CACHE_LINE));
    if (*memory != NULL)
        *index = pst_k_cache_init(*memory, ids, n);
    free(ids);
    return *memory != NULL ? PST_OK : no_index(r, n);
}

void pst_sampling_resident_begin(struct pst_sampling_resident *r, const struct pst_plan *plan, int own)
{
    const struct pst_plan_caches *c = &plan->caches;
    const int64_t *ids;
    *r = (struct pst_sampling_resident){.line_bytes = c->line_bytes};
    r->replica[r->members++] = own;
    for (int other = 0; other < c->replicas; other++)
        if (other != own && c->group[other] == c->group[own])
            r->replica[r->members++] = other;
    for (int k = 0; k < r->members; k++) {
        r->rows_first[k + 1] = r->rows_first[k] + pst_sampling_resident_rows_of(plan, r->replica[k], &ids);
        r->lists_first[k + 1] = r->lists_first[k] + pst_sampling_resident_lists_of(plan, r->replica[k], &ids);
    }
    r->rows_first[r->members + 1] = r->rows_first[r->members] + plan->rows.n;
}

pst_rc pst_sampling_resident_load(struct pst_sampling_resident *r, struct pst_stage *self, bool owner,
                                  const struct pst_plan *plan, const struct pst_dataset *ds,
                                  const struct pst_csc *graph, int64_t vertices_max, int64_t edges_max)
{
    const int own = pst_replica(self, NULL);
    pst_sampling_resident_begin(r, plan, own);
    r->graph = graph;
    r->pos = malloc((size_t)vertices_max * sizeof *r->pos);
    r->row = malloc((size_t)vertices_max * sizeof *r->row);
    r->line = malloc((size_t)edges_max * sizeof *r->line + 1);
    pst_rc rc =
        r->pos != NULL && r->row != NULL && r->line != NULL
            ? PST_OK
            : pst_fail(PST_E_NOMEM, "out of memory: cannot read the caches of %d replicas", r->members);
    if (rc == PST_OK && owner)
        rc = fill(plan, own, ds, graph, pst_shared(self));
    if (rc == PST_OK)
        rc = map_members(r, self, plan, graph, ds->stride_bytes);
    if (rc == PST_OK)
        rc = make_index(r, plan, true, &r->index_memory[0], &r->rows_index);
    return rc == PST_OK ? make_index(r, plan, false, &r->index_memory[1], &r->lists_index) : rc;
}

void pst_sampling_resident_release(struct pst_sampling_resident *r)
{
    free(r->index_memory[0]);
    free(r->index_memory[1]);
    free(r->pos);
    free(r->row);
    free(r->line);
    *r = (struct pst_sampling_resident){.members = 0};
}

/* ---- reading ---------------------------------------------------------------------------------------- */

void pst_sampling_resident_gather(struct pst_sampling_resident *r, const int32_t *row, const int32_t *pos,
                                  int64_t n, char *to, uint64_t stride, uint64_t row_bytes)
{
    for (int k = 0; k <= r->members; k++) {
        int64_t some = 0;
        for (int64_t i = 0; i < n; i++) {
            r->pos[some] = pos[i];
            r->row[some] = (int32_t)(row[i] - r->rows_first[k]);
            some += row[i] >= r->rows_first[k] && row[i] < r->rows_first[k + 1];
        }
        if (some > 0)
            pst_k_gather(NULL, r->rows[k].rows, stride, r->row, to, stride, r->pos, some, row_bytes);
        *(k < r->members ? &r->open.rows[k] : &r->open.rows_host) += (uint64_t)some;
    }
}

int pst_sampling_resident_list(const struct pst_sampling_resident *r, int32_t *list)
{
    int k = 0;
    while (*list >= r->lists_first[k + 1])
        k++;
    *list -= (int32_t)r->lists_first[k];
    return k;
}

void pst_sampling_resident_count(struct pst_sampling_resident *r, int64_t v, const int64_t *at, int64_t n)
{
    const int64_t entry = r->graph->index_bytes, offset = (int64_t)sizeof *r->graph->indptr;
    const int64_t first = v * offset / r->line_bytes, last = (v + 1) * offset / r->line_bytes;
    int64_t lines = last - first + 1;
    for (int64_t i = 0; i < n; i++)
        r->line[i] = at[i] * entry / r->line_bytes;
    qsort(r->line, (size_t)n, sizeof *r->line, ascending);
    for (int64_t i = 0; i < n; i++)
        lines += i == 0 || r->line[i] != r->line[i - 1];
    r->open.edges_host += (uint64_t)n;
    r->open.lines_host += (uint64_t)lines;
}

void pst_sampling_resident_end(struct pst_sampling_resident *r, bool complete)
{
    struct pst_sampling_resident_counts *all = &r->count, *one = &r->open;
    for (int k = 0; complete && k < r->members; k++) {
        all->rows[k] += one->rows[k];
        all->edges[k] += one->edges[k];
    }
    if (complete) {
        all->rows_host += one->rows_host;
        all->rows_disk += one->rows_disk;
        all->edges_host += one->edges_host;
        all->lines_host += one->lines_host;
    }
    *one = (struct pst_sampling_resident_counts){.rows_host = 0};
}

/* ---- report ----------------------------------------------------------------------------------------- */

static pst_rc report_members(const struct pst_sampling_resident *r, struct pst_stage *self)
{
    const struct pst_sampling_resident_counts *c = &r->count;
    const int own = r->replica[0];
    pst_rc rc =
        pst_report(self, "shared_caches",
                   "{\"rows_%d_from_host\": %llu, \"rows_%d_from_disk\": %llu, \"edges_%d_from_host\": %llu, "
                   "\"lines_%d\": %llu}",
                   own, (unsigned long long)c->rows_host, own, (unsigned long long)c->rows_disk, own,
                   (unsigned long long)c->edges_host, own, (unsigned long long)c->lines_host);
    for (int k = 0; k < r->members && rc == PST_OK; k++)
        rc = pst_report(self, "shared_caches", "{\"rows_%d_from_%d\": %llu, \"edges_%d_from_%d\": %llu}", own,
                        r->replica[k], (unsigned long long)c->rows[k], own, r->replica[k],
                        (unsigned long long)c->edges[k]);
    return rc;
}

pst_rc pst_sampling_resident_report(const struct pst_sampling_resident *r, struct pst_stage *self,
                                    uint64_t stride)
{
    const struct pst_sampling_resident_counts *c = &r->count;
    const uint64_t missed = c->rows_host + c->rows_disk,
                   lines_of_row = (stride + (uint64_t)r->line_bytes - 1) / (uint64_t)r->line_bytes;
    const uint64_t transactions = c->lines_host + missed * lines_of_row;
    uint64_t rows = 0, edges = 0;
    for (int k = 1; k < r->members; k++) {
        rows += c->rows[k];
        edges += c->edges[k];
    }
    const pst_rc rc =
        pst_report(self, "shared_caches",
                   "{\"rows_local\": %llu, \"rows_peer\": %llu, \"rows_host\": %llu, \"rows_disk\": %llu, "
                   "\"edges_local\": %llu, \"edges_peer\": %llu, \"edges_host\": %llu, \"lines_host\": %llu, "
                   "\"transactions\": %llu}",
                   (unsigned long long)c->rows[0], (unsigned long long)rows, (unsigned long long)c->rows_host,
                   (unsigned long long)c->rows_disk, (unsigned long long)c->edges[0],
                   (unsigned long long)edges, (unsigned long long)c->edges_host,
                   (unsigned long long)c->lines_host, (unsigned long long)transactions);
    return rc == PST_OK ? report_members(r, self) : rc;
}

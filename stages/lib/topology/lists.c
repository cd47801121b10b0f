/* lists.c: copies lists of neighbours out of the mapped files, or reads them from the file. */
#include "stages/lib/topology/lists.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/read_ahead.h"
#include "common/store/store.h"
#include "common/store/vertices.h"
#include "common/util/memory.h"

#define PIECE_BYTES ((int64_t)4 << 20) /* one read: large enough to reach a drive's bandwidth */
#define GAP_BYTES ((int64_t)64 << 10)  /* reading a smaller gap costs less than another read */
#define QUADRATIC_MAX 64               /* entries that are compared with one another, to count lines */

/* ---- memory: offsets, index, entries ---------------------------------------------------------------- */

static uint64_t index_at(int64_t n)
{
    return pst_align_up(((uint64_t)n + 1) * sizeof(int64_t), PST_PAGE);
}

static uint64_t entries_at(int64_t n)
{
    return pst_align_up(index_at(n) + pst_k_cache_bytes(n), PST_PAGE);
}

static pst_rc degree_of(const struct pst_csc *graph, int64_t v, int64_t *degree)
{
    if (v < 0 || v >= graph->vertices)
        return pst_fail(PST_E_FORMAT,
                        "the plan caches the neighbours of vertex %lld, but the graph has only %lld "
                        "vertices: make a new plan",
                        (long long)v, (long long)graph->vertices);
    const int64_t begin = graph->indptr[v], end = graph->indptr[v + 1];
    if (begin < 0 || end < begin || end > graph->edges)
        return pst_fail(PST_E_FORMAT,
                        "indptr gives vertex %lld the edges %lld to %lld, but the graph has only %lld "
                        "edges; `penstock verify` shows details",
                        (long long)v, (long long)begin, (long long)end, (long long)graph->edges);
    *degree = end - begin;
    return PST_OK;
}

pst_rc pst_topology_lists_bytes(const struct pst_csc *graph, const int64_t *vertices, int64_t n,
                                uint64_t *bytes)
{
    uint64_t entries = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t degree = 0;
        const pst_rc rc = degree_of(graph, vertices[i], &degree);
        if (rc != PST_OK)
            return rc;
        entries += (uint64_t)degree;
    }
    *bytes = entries_at(n) + entries * (uint64_t)graph->index_bytes;
    return PST_OK;
}

void pst_topology_lists_borrow(struct pst_topology_lists *l, void *memory, const struct pst_csc *graph,
                               int64_t gpu_n, int64_t n)
{
    char *at = memory;
    *l = (struct pst_topology_lists){.n = n,
                                     .gpu_n = gpu_n,
                                     .at = memory,
                                     .entries = at + entries_at(n),
                                     .entry_bytes = graph->index_bytes,
                                     .index = (struct pst_cache *)(void *)(at + index_at(n))};
}

/* ---- loading ---------------------------------------------------------------------------------------- */

static pst_rc check_once(const int64_t *sorted, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        if (sorted[i] == sorted[i - 1])
            return pst_fail(PST_E_FORMAT,
                            "the plan caches the neighbours of vertex %lld twice: make a new plan",
                            (long long)sorted[i]);
    }
    return PST_OK;
}

/* In each tier the lists are in the order of the file. */
static void set_places(struct pst_topology_lists *l, const struct pst_csc *graph, const int64_t *ids)
{
    l->at[0] = 0;
    for (int64_t i = 0; i < l->n; i++)
        l->at[i + 1] = l->at[i] + graph->indptr[ids[i] + 1] - graph->indptr[ids[i]];
}

/* Copies lists i to end - 1. from: entries of the graph, from entry `first` on. */
static void copy_lists(struct pst_topology_lists *l, const struct pst_csc *graph, const int64_t *ids,
                       int64_t i, int64_t end, const char *from, int64_t first)
{
    char *to = (char *)(uintptr_t)l->entries;
    for (; i < end; i++)
        memcpy(to + l->at[i] * l->entry_bytes, from + (graph->indptr[ids[i]] - first) * l->entry_bytes,
               (size_t)((l->at[i + 1] - l->at[i]) * l->entry_bytes));
}

static uint64_t longest_of(const struct pst_topology_lists *l)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < l->n; i++)
        longest = pst_max_i64(longest, l->at[i + 1] - l->at[i]);
    return (uint64_t)(longest * l->entry_bytes);
}

/* Lists that lie close together in the file, which one read brings. */
struct piece {
    int64_t begin, end;   /* of the ids */
    int64_t first, after; /* entries */
};

static struct piece piece_from(const struct pst_topology_lists *l, const struct pst_csc *graph,
                               const int64_t *ids, int64_t i)
{
    const int64_t most = PIECE_BYTES / l->entry_bytes, gap = GAP_BYTES / l->entry_bytes;
    struct piece p = {i, i + 1, graph->indptr[ids[i]], graph->indptr[ids[i] + 1]};
    for (; p.end < l->n; p.end++) {
        const int64_t first = graph->indptr[ids[p.end]], after = graph->indptr[ids[p.end] + 1];
        if (first < p.after || first - p.after > gap || after - p.first > most)
            break;
        p.after = after;
    }
    return p;
}

static void ask(struct pst_read_ahead *reader, const struct pst_array *file, const struct piece *p,
                uint64_t entry)
{
    pst_read_ahead_ask(reader, file->data_at + (uint64_t)p->first * entry,
                       (uint64_t)(p->after - p->first) * entry);
}

/* While lists are copied, the next ones are read. */
static pst_rc read_lists(struct pst_topology_lists *l, const struct pst_csc *graph,
                         const struct pst_array *file, const int64_t *ids)
{
    const uint64_t entry = (uint64_t)l->entry_bytes, longest = longest_of(l);
    struct pst_read_ahead *reader;
    pst_rc rc = pst_read_ahead_open(&reader, file->path, longest > PIECE_BYTES ? longest : PIECE_BYTES);
    if (rc != PST_OK)
        return rc;
    struct piece next = piece_from(l, graph, ids, 0);
    ask(reader, file, &next, entry);
    for (struct piece p = next; p.begin < l->n; p = next) {
        const char *entries;
        uint64_t bytes;
        rc = pst_read_ahead_take(reader, &entries, &bytes);
        if (rc == PST_OK && bytes < (uint64_t)(p.after - p.first) * entry)
            rc = pst_fail(PST_E_IO, "%s ends before edge %lld of %lld: the file became shorter", file->path,
                          (long long)p.after - 1, (long long)graph->edges);
        if (rc != PST_OK)
            break;
        next.begin = p.end;
        if (p.end < l->n) {
            next = piece_from(l, graph, ids, p.end);
            ask(reader, file, &next, entry);
        }
        copy_lists(l, graph, ids, p.begin, p.end, entries, p.first);
    }
    pst_read_ahead_close(reader);
    return rc == PST_OK ? rc : pst_wrap(rc, "cannot fill the cache of lists");
}

pst_rc pst_topology_lists_load(struct pst_topology_lists *l, void *memory, const struct pst_csc *graph,
                               const struct pst_array *file, const int64_t *vertices, int64_t gpu_n,
                               int64_t n)
{
    uint64_t bytes = 0;
    *l = (struct pst_topology_lists){0};
    assert(gpu_n >= 0 && gpu_n <= n);
    pst_rc rc = pst_topology_lists_bytes(graph, vertices, n, &bytes);
    if (rc != PST_OK)
        return rc;
    int64_t *ids = malloc((size_t)n * sizeof *ids + 1);
    void *own = memory == NULL ? pst_hugepage_alloc(bytes) : NULL;
    if (ids == NULL || (memory == NULL && own == NULL)) {
        rc = pst_fail(PST_E_NOMEM,
                      "out of memory: cannot cache %lld lists of neighbours, which take %llu bytes",
                      (long long)n, (unsigned long long)bytes);
        goto out;
    }
    memcpy(ids, vertices, (size_t)n * sizeof *ids);
    pst_vertices_sort(ids, n);
    rc = check_once(ids, n);
    if (rc != PST_OK)
        goto out;
    if (gpu_n > 0) {
        memcpy(ids, vertices, (size_t)n * sizeof *ids);
        pst_vertices_sort(ids, gpu_n);
        pst_vertices_sort(ids + gpu_n, n - gpu_n);
    }
    pst_topology_lists_borrow(l, memory != NULL ? memory : own, graph, gpu_n, n);
    l->memory = own;
    own = NULL;
    set_places(l, graph, ids);
    if (file == NULL)
        copy_lists(l, graph, ids, 0, n, graph->indices, 0);
    else if (n > 0)
        rc = read_lists(l, graph, file, ids);
    if (rc == PST_OK)
        l->index = pst_k_cache_init(l->index, ids, n);
    else
        pst_topology_lists_release(l);
out:
    free(own);
    free(ids);
    return rc;
}

void pst_topology_lists_release(struct pst_topology_lists *l)
{
    free(l->memory);
    *l = (struct pst_topology_lists){0};
}

/* ---- transactions ----------------------------------------------------------------------------------- */

static int64_t line_of(const struct pst_topology_lists *l, int64_t at)
{
    return at * l->entry_bytes / PST_TOPOLOGY_LINE;
}

static bool seen_before(const struct pst_topology_lists *l, const int64_t *at, int64_t i)
{
    for (int64_t k = 0; k < i; k++) {
        if (line_of(l, at[k]) == line_of(l, at[i]))
            return true;
    }
    return false;
}

int64_t pst_topology_lists_lines(const struct pst_topology_lists *l, int64_t list, const int64_t *at,
                                 int64_t n)
{
    const int64_t begin = l->at[list], end = l->at[list + 1], offset_bytes = list * (int64_t)sizeof *l->at,
                  offsets = 1 + ((offset_bytes + 15) / PST_TOPOLOGY_LINE > offset_bytes / PST_TOPOLOGY_LINE),
                  whole = begin < end ? line_of(l, end - 1) - line_of(l, begin) + 1 : 0;
    if (n > QUADRATIC_MAX)
        return offsets + pst_min_i64(n, whole);
    int64_t lines = 0;
    for (int64_t i = 0; i < n; i++)
        lines += !seen_before(l, at, i);
    return offsets + lines;
}

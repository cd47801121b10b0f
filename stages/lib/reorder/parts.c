/* parts.c: the order by METIS: parts with few edges between them, which are divided again until they have
 * few vertices. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/legion/partition.h"
#include "stages/lib/reorder/renumber_impl.h"

#define PART_VERTICES 128 /* a part of so many, breadth first, is not divided: 8 KiB of rows of 64 bytes */
struct job {
    const struct pst_renumber_spec *s;
    struct pst_progress *progress;
    int32_t *local; /* vertices: the number within the part that is divided; -1: not of it */
};

/* The subgraph of the vertices, numbered by their places. */
struct part {
    struct pst_csc graph;
    int64_t *indptr;
    int32_t *indices;
    int8_t *of; /* the part of each */
};

static void release(struct part *p)
{
    free(p->indptr);
    free(p->indices);
    free(p->of);
}

static pst_rc no_memory(int64_t n)
{
    return pst_fail(PST_E_NOMEM, "out of memory: cannot divide %" PRId64 " vertices", n);
}

static int64_t edges_within(const struct job *j, const int64_t *order, int64_t n, int64_t *indptr,
                            int32_t *indices)
{
    const struct pst_csc *g = &j->s->hoods->graph;
    int64_t edges = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t e = g->indptr[order[i]]; e < g->indptr[order[i] + 1]; e++) {
            const int32_t u = j->local[pst_renumber_neighbour(g, e)];
            if (u >= 0 && indices != NULL)
                indices[edges] = u;
            edges += u >= 0;
        }
        indptr[i + 1] = edges;
    }
    return edges;
}

static pst_rc make(const struct job *j, const int64_t *order, int64_t n, struct part *p)
{
    *p = (struct part){.indptr = malloc(((size_t)n + 1) * sizeof *p->indptr), .of = malloc((size_t)n + 1)};
    if (p->indptr == NULL || p->of == NULL)
        return no_memory(n);
    for (int64_t i = 0; i < n; i++)
        j->local[order[i]] = (int32_t)i;
    p->indptr[0] = 0;
    const int64_t edges = edges_within(j, order, n, p->indptr, NULL);
    p->indices = malloc((size_t)edges * sizeof *p->indices + 1);
    if (p->indices != NULL)
        (void)edges_within(j, order, n, p->indptr, p->indices);
    for (int64_t i = 0; i < n; i++)
        j->local[order[i]] = -1;
    p->graph = (struct pst_csc){
        .indptr = p->indptr, .indices = p->indices, .index_bytes = 4, .vertices = n, .edges = edges};
    return p->indices != NULL ? PST_OK : no_memory(n);
}

/* Sorts the vertices by their parts; end[k]: where part k ends. */
static pst_rc sort(int64_t *order, int64_t n, const int8_t *of, int64_t end[PST_CLIQUES_MAX])
{
    int64_t *copy = malloc((size_t)n * sizeof *copy + 1), at[PST_CLIQUES_MAX] = {0}, sum = 0;
    if (copy == NULL)
        return no_memory(n);
    memcpy(copy, order, (size_t)n * sizeof *copy);
    for (int64_t i = 0; i < n; i++)
        at[of[i]]++;
    for (int k = 0; k < PST_CLIQUES_MAX; k++) {
        const int64_t size = at[k];
        at[k] = sum;
        sum += size;
    }
    for (int64_t i = 0; i < n; i++)
        order[at[of[i]]++] = copy[i];
    memcpy(end, at, sizeof at);
    free(copy);
    return PST_OK;
}

static pst_rc divide(struct job *j, int64_t *order, int64_t n)
{
    struct part p;
    int64_t end[PST_CLIQUES_MAX];
    if (n <= PART_VERTICES)
        return pst_progress_add(j->progress, (uint64_t)n);
    pst_rc rc = make(j, order, n, &p);
    struct pst_legion_partition m = {
        .graph = &p.graph,
        .parts = (int)pst_min_i64(PST_CLIQUES_MAX, (n + PART_VERTICES - 1) / PART_VERTICES),
        .entries_max =
            (int64_t)((j->s->memory_bytes - PST_LEGION_OTHER_BYTES - (uint64_t)n * PST_LEGION_VERTEX_BYTES) /
                      PST_LEGION_ENTRY_BYTES)};
    m.entries_max = pst_min_i64(m.entries_max, PST_LEGION_ENTRIES_MAX);
    for (int k = 0; k < m.parts; k++)
        m.weight[k] = 1;
    if (rc == PST_OK)
        rc = pst_legion_partition(&m, p.of);
    if (rc == PST_OK)
        rc = sort(order, n, p.of, end);
    release(&p);
    int64_t begin = 0;
    for (int k = 0; k < m.parts && rc == PST_OK; k++) {
        /* METIS leaves a part whole if it finds nothing to cut */
        rc = end[k] - begin == n ? pst_progress_add(j->progress, (uint64_t)n)
                                 : divide(j, order + begin, end[k] - begin);
        begin = end[k];
    }
    return rc;
}

pst_rc pst_renumber_by_parts(const struct pst_renumber_spec *s, int64_t *order, struct pst_progress *progress)
{
    const int64_t n = s->hoods->graph.vertices;
    struct job j = {.s = s, .progress = progress};
    const uint64_t need =
        PST_LEGION_OTHER_BYTES + (uint64_t)n * (PST_LEGION_VERTEX_BYTES + 2 * PST_LEGION_ENTRY_BYTES);
    if (n >= INT32_MAX)
        return pst_fail(PST_E_LIMIT, "METIS cannot divide %" PRId64 " vertices: use another order", n);
    if (s->memory_bytes < need)
        return pst_fail(PST_E_ARG,
                        "--memory: %" PRIu64 " bytes are too few for METIS and %" PRId64
                        " vertices: expected at least %" PRIu64 ", or use another order",
                        s->memory_bytes, n, need);
    j.local = malloc((size_t)n * sizeof *j.local + 1);
    if (j.local == NULL)
        return no_memory(n);
    memset(j.local, -1, (size_t)n * sizeof *j.local);
    pst_progress_begin(progress, "dividing", (uint64_t)n, false);
    const pst_rc rc = divide(&j, order, n);
    if (rc == PST_OK)
        pst_progress_end(progress);
    free(j.local);
    return rc;
}

/* hoods.c: draws batches, and what each seed has in them, on the CPU. */
#include "stages/lib/reorder/hoods.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/error.h"
#include "stages/lib/topology/topology.h"

#define AHEAD_BYTES 16384    /* of longer lists, a batch needs too few pages */
#define FIRST_VERTICES 65536 /* scratch at the beginning; it doubles when a batch does not fit */

static void release_scratch(struct pst_hoods *h)
{
    pst_expander_release(&h->expander);
    free(h->vertices);
    free(h->indptr);
    free(h->indices);
    free(h->weights);
    h->vertices = NULL;
    h->indptr = h->indices = NULL;
    h->weights = NULL;
}

static pst_rc make_scratch(struct pst_hoods *h, int64_t vertices, int64_t edges)
{
    release_scratch(h);
    h->vertices_max = vertices;
    h->edges_max = edges;
    const bool weighs = pst_sampling_has(&h->algorithm, PST_SAMPLING_WEIGHS);
    const pst_rc rc = pst_expander_init(&h->expander, &h->graph, &h->algorithm, vertices, edges);
    if (rc != PST_OK)
        return rc;
    h->vertices = malloc((size_t)vertices * sizeof *h->vertices);
    h->indptr = malloc(((size_t)vertices + 1) * sizeof *h->indptr);
    h->indices = malloc((size_t)edges * sizeof *h->indices);
    if (weighs)
        h->weights = malloc((size_t)edges * sizeof *h->weights);
    return h->vertices != NULL && h->indptr != NULL && h->indices != NULL && (!weighs || h->weights != NULL)
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot draw batches of %lld vertices",
                          (long long)vertices);
}

static pst_rc grow(struct pst_hoods *h)
{
    int64_t edges = 1;
    const int64_t vertices = h->bound.n[h->bound.hops];
    for (int k = 0; k < h->bound.hops; k++)
        edges = pst_max_i64(edges, h->bound.edges[k]);
    if (h->vertices_max >= vertices && h->edges_max >= edges)
        return pst_fail(
            PST_E_LIMIT,
            "the sampling algorithm drew more than the %lld vertices and %lld edges per hop that its "
            "own limits announce: correct the algorithm",
            (long long)vertices, (long long)edges);
    return make_scratch(h, pst_min_i64(2 * h->vertices_max, vertices), pst_min_i64(2 * h->edges_max, edges));
}

/* ---- large graphs ---------------------------------------------------------------------------------- */

/* The pages of entries `from` to `to` - 1. madvise is a request: without it, reading is only slower. */
static void advise(const struct pst_csc *g, int64_t from, int64_t to, int advice)
{
    char *first = (char *)(uintptr_t)g->indices + from * g->index_bytes;
    const uintptr_t lead = (uintptr_t)first % PST_PAGE;
    (void)madvise(first - lead, (size_t)(to - from) * (size_t)g->index_bytes + lead, advice);
}

void pst_hoods_begin(const struct pst_hoods *h)
{
    if (h->large)
        advise(&h->graph, 0, h->graph.edges, MADV_RANDOM);
}

void pst_hoods_end(const struct pst_hoods *h)
{
    if (h->large)
        advise(&h->graph, 0, h->graph.edges, MADV_NORMAL);
}

/* The kernel reads these lists at the same time, instead of one after the other when they are needed. */
static void read_ahead(const struct pst_hoods *h, int64_t from, int64_t to)
{
    const struct pst_csc *g = &h->graph;
    for (int64_t i = from; i < to; i++) {
        const int64_t begin = g->indptr[h->vertices[i]], end = g->indptr[h->vertices[i] + 1];
        if (end > begin && (end - begin) * g->index_bytes <= AHEAD_BYTES)
            advise(g, begin, end, MADV_WILLNEED);
    }
}

/* ---- batches --------------------------------------------------------------------------------------- */

static pst_rc draw(struct pst_hoods *h, uint64_t batch, const int64_t *seeds, int64_t n)
{
    int64_t count = 0;
    pst_rc rc = pst_expand_seeds(&h->expander, seeds, n, h->vertices, &count, h->vertices_max);
    h->n[0] = count;
    for (int k = 0; k < h->spec.hops && rc == PST_OK; k++) {
        const struct pst_sample_key key = {.seed = h->spec.seed,
                                           .epoch = (uint32_t)(batch / h->seeds.batches),
                                           .batch = batch % h->seeds.batches,
                                           .hop = (uint32_t)k};
        if (h->large)
            read_ahead(h, k > 0 ? h->n[k - 1] : 0, count);
        rc = pst_expand_hop(&h->expander, &key, (int)h->spec.fanout[k], h->vertices, &count, h->vertices_max,
                            h->indptr, h->indices, h->weights, h->edges_max);
        h->n[k + 1] = count;
    }
    return rc;
}

static pst_rc draw_growing(struct pst_hoods *h, uint64_t batch, const int64_t *seeds, int64_t n)
{
    pst_rc rc = draw(h, batch, seeds, n);
    while (rc == PST_E_LIMIT) {
        rc = grow(h);
        if (rc == PST_OK)
            rc = draw(h, batch, seeds, n);
    }
    return rc == PST_OK ? rc : pst_wrap(rc, "cannot draw batch %llu", (unsigned long long)batch);
}

void pst_hoods_seeds(struct pst_hoods *h, uint64_t batch, int64_t *n)
{
    *n = pst_seeds_of(&h->seeds, batch, h->batch);
}

pst_rc pst_hoods_batch(struct pst_hoods *h, uint64_t batch)
{
    int64_t n;
    pst_hoods_seeds(h, batch, &n);
    return draw_growing(h, batch, h->batch, n);
}

pst_rc pst_hoods_one(struct pst_hoods *h, uint64_t batch, int64_t seed)
{
    return draw_growing(h, batch, &seed, 1);
}

static pst_rc open_algorithm(struct pst_hoods *h)
{
    const struct pst_sampling_setup setup = {.dataset = &h->ds,
                                             .graph = &h->graph,
                                             .hops = h->spec.hops,
                                             .fanout = h->spec.fanout,
                                             .replace = h->spec.replace,
                                             .batch = h->seeds.batch,
                                             .batches = h->seeds.batches};
    pst_rc rc = pst_sampling_algorithm_find(&h->algorithm, h->spec.algorithm);
    if (rc == PST_OK)
        rc = pst_sampling_algorithm_open(&h->algorithm, h->spec.options, &setup);
    if (rc == PST_OK)
        pst_sampling_size_bound(&h->bound, &h->algorithm, &h->graph, h->spec.fanout, h->spec.hops,
                                h->seeds.batch);
    return rc;
}

pst_rc pst_hoods_open(struct pst_hoods *h, const char *dataset, const struct pst_hoods_spec *spec)
{
    int part = PST_TRAIN;
    *h = (struct pst_hoods){.spec = *spec};
    pst_rc rc = pst_dataset_open(&h->ds, dataset);
    if (rc != PST_OK)
        return rc;
    h->open = true;
    h->graph = pst_topology_mapped(&h->ds);
    if (spec->split == NULL)
        return PST_OK;
    rc = pst_dataset_choose_split(&h->ds, spec->split, &part);
    if (rc == PST_OK)
        rc = pst_seeds_init(&h->seeds, &h->ds, pst_dataset_part_name(part), spec->batch, spec->seed, true);
    if (rc == PST_OK)
        rc = open_algorithm(h);
    if (rc == PST_OK) {
        const int64_t least = pst_min_i64(FIRST_VERTICES, h->bound.n[h->bound.hops]);
        h->batch = malloc((size_t)h->seeds.batch * sizeof *h->batch);
        rc = h->batch != NULL ? make_scratch(h, least, 4 * FIRST_VERTICES)
                              : pst_fail(PST_E_NOMEM, "out of memory: cannot draw batches of %lld seeds",
                                         (long long)h->seeds.batch);
    }
    if (rc != PST_OK)
        pst_hoods_close(h);
    return rc;
}

void pst_hoods_close(struct pst_hoods *h)
{
    if (!h->open)
        return;
    release_scratch(h);
    free(h->batch);
    pst_sampling_algorithm_close(&h->algorithm);
    pst_seeds_release(&h->seeds);
    pst_dataset_close(&h->ds);
    *h = (struct pst_hoods){.vertices = NULL};
}

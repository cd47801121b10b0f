/* cut.c: cuts the seeds of a batch into pieces; samples a batch whole, and gives its pieces their neighbours.
 */
#include "stages/lib/sampling/cut.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define FIRST_VERTICES 16384 /* room at the beginning; it doubles when a batch does not fit */
#define FIRST_EDGES (4 * FIRST_VERTICES)

/* ---- seeds ------------------------------------------------------------------------------------------ */

static int64_t grain_begin(const struct pst_splits *p, int64_t grain)
{
    return grain * p->n / p->grains;
}

int64_t pst_splits_grain(const struct pst_splits *p)
{
    int64_t grain = 0;
    while (grain_begin(p, grain + 1) <= p->done)
        grain++;
    return grain;
}

/* Puts the equal pieces of [from, to), of at most `most` seeds, on the stack. */
static void cut(struct pst_splits *p, int64_t from, int64_t to, int64_t most)
{
    const int64_t left = to - from, pieces = (left + most - 1) / most;
    int64_t end = from;
    p->depth += pieces;
    /* the first left % pieces pieces are one longer; the nearest end goes on top */
    for (int64_t i = 0; i < pieces; i++) {
        end += left / pieces + (i < left % pieces);
        p->ends[p->depth - 1 - i] = end;
    }
}

void pst_splits_init(struct pst_splits *p, int64_t *ends, int64_t n, int64_t most,
                     const struct pst_splits_share *share)
{
    static const struct pst_splits_share whole = {.grains = 1, .count = 1};
    share = share ? share : &whole;
    assert(n >= 0 && most >= 1 && share->grains >= 1 && share->first + share->count <= share->grains);
    *p = (struct pst_splits){.ends = ends, .n = n, .grains = share->grains};
    p->done = grain_begin(p, share->first);
    for (int64_t grain = share->first + share->count - 1; grain >= share->first; grain--)
        cut(p, grain_begin(p, grain), grain_begin(p, grain + 1), most);
}

bool pst_splits_next(const struct pst_splits *p, int64_t *begin, int64_t *n, bool *last)
{
    if (p->depth == 0)
        return false;
    *begin = p->done;
    *n = p->ends[p->depth - 1] - p->done;
    *last = p->depth == 1;
    return true;
}

void pst_splits_pop(struct pst_splits *p)
{
    assert(p->depth > 0);
    p->done = p->ends[--p->depth];
}

bool pst_splits_split(struct pst_splits *p)
{
    assert(p->depth > 0);
    int64_t n = p->ends[p->depth - 1] - p->done;
    if (n < 2)
        return false;
    const int64_t to = grain_begin(p, pst_splits_grain(p) + 1);
    while (p->depth > 0 && p->ends[p->depth - 1] <= to)
        p->depth--;
    cut(p, p->done, to, (n + 1) / 2);
    return true;
}

/* ---- a batch that was sampled whole ----------------------------------------------------------------- */

/* Frees the memory of a batch, not what the caller has set. */
static void forget(struct pst_cut *c)
{
    pst_expander_release(&c->expander);
    free(c->vertices);
    free(c->at);
    for (int h = 0; h < PST_HOPS_MAX; h++) {
        free(c->indptr[h]);
        free(c->indices[h]);
        free(c->weights[h]);
    }
    *c = (struct pst_cut){.graph = c->graph, .algorithm = c->algorithm, .fanout = c->fanout, .hops = c->hops};
}

void pst_cut_release(struct pst_cut *c)
{
    forget(c);
}

static bool take_hop(struct pst_cut *c, int h)
{
    c->indptr[h] = malloc(((size_t)c->vertices_max + 1) * sizeof *c->indptr[h]);
    c->indices[h] = malloc((size_t)c->edges_max * sizeof *c->indices[h]);
    const bool weighs = pst_sampling_has(c->algorithm, PST_SAMPLING_WEIGHS);
    if (weighs)
        c->weights[h] = malloc((size_t)c->edges_max * sizeof *c->weights[h]);
    return c->indptr[h] != NULL && c->indices[h] != NULL && (!weighs || c->weights[h] != NULL);
}

static pst_rc take(struct pst_cut *c, int64_t vertices, int64_t edges)
{
    forget(c);
    const pst_rc rc = pst_expander_init(&c->expander, c->graph, c->algorithm, vertices, edges);
    if (rc != PST_OK)
        return rc;
    c->vertices_max = vertices;
    c->edges_max = edges;
    c->vertices = malloc((size_t)vertices * sizeof *c->vertices);
    c->at = malloc((size_t)vertices * sizeof *c->at);
    bool all = c->vertices != NULL && c->at != NULL;
    for (int h = 0; h < c->hops && all; h++)
        all = take_hop(c, h);
    return all ? PST_OK
               : pst_fail(
                     PST_E_NOMEM,
                     "out of memory: cannot sample a whole batch of %lld vertices and %lld edges per hop",
                     (long long)vertices, (long long)edges);
}

static pst_rc sample(struct pst_cut *c, const struct pst_sample_key *key, const int64_t *seeds, int64_t n)
{
    struct pst_sample_key of_hop = *key;
    int64_t count = 0;
    c->found = (struct pst_minibatch_size){.hops = c->hops};
    pst_rc rc = pst_expand_seeds(&c->expander, seeds, n, c->vertices, &count, c->vertices_max);
    c->found.n[0] = count;
    for (int h = 0; h < c->hops && rc == PST_OK; h++) {
        of_hop.hop = (uint32_t)h;
        rc = pst_expand_hop(&c->expander, &of_hop, (int)c->fanout[h], c->vertices, &count, c->vertices_max,
                            c->indptr[h], c->indices[h], c->weights[h], c->edges_max);
        c->found.n[h + 1] = count;
    }
    return rc;
}

static bool is_held(const struct pst_cut *c, const struct pst_sample_key *key)
{
    return c->held && c->key.seed == key->seed && c->key.epoch == key->epoch && c->key.batch == key->batch;
}

pst_rc pst_cut_hold(struct pst_cut *c, const struct pst_sample_key *key, const int64_t *seeds, int64_t n)
{
    struct pst_minibatch_size bound;
    int64_t edges = 1;
    if (is_held(c, key))
        return PST_OK;
    pst_sampling_size_bound(&bound, c->algorithm, c->graph, c->fanout, c->hops, n);
    for (int h = 0; h < c->hops; h++)
        edges = pst_max_i64(edges, bound.edges[h]);
    const int64_t vertices = bound.n[c->hops];
    c->held = false;
    pst_rc rc = c->vertices == NULL
                    ? take(c, pst_min_i64(vertices, FIRST_VERTICES), pst_min_i64(edges, FIRST_EDGES))
                    : PST_OK;
    if (rc == PST_OK)
        rc = sample(c, key, seeds, n);
    while (rc == PST_E_LIMIT && (c->vertices_max < vertices || c->edges_max < edges)) {
        rc = take(c, pst_min_i64(vertices, 2 * c->vertices_max), pst_min_i64(edges, 2 * c->edges_max));
        if (rc == PST_OK)
            rc = sample(c, key, seeds, n);
    }
    c->held = rc == PST_OK;
    c->key = *key;
    return rc != PST_E_LIMIT ? rc
                             : pst_fail(rc,
                                        "the sampling algorithm drew more than the %lld vertices and %lld "
                                        "edges per hop that its own limits announce: correct the algorithm",
                                        (long long)vertices, (long long)edges);
}

pst_rc pst_cut_draw(struct pst_cut *c, const struct pst_sampling_hop *hop)
{
    const int h = (int)hop->key->hop;
    int64_t all = c->found.n[c->hops], used = 0;
    assert(c->held && h < c->hops);
    /* The table knows all vertices of the batch: it returns their places, and adds none. */
    if (pst_k_dedup(NULL, c->expander.table, hop->vertices, hop->n, c->vertices, &all, all, c->at) != PST_OK)
        return pst_fail(PST_E_STATE,
                        "a batch was split into pieces, and a piece has a vertex that the whole batch does "
                        "not have: this is a fault of Penstock or of the sampling algorithm");
    hop->indptr[0] = 0;
    for (int64_t i = 0; i < hop->n; i++) {
        const int32_t from = c->indptr[h][c->at[i]], n = c->indptr[h][c->at[i] + 1] - from;
        assert(c->at[i] < c->found.n[h]);
        if (used + n > hop->capacity)
            return PST_E_LIMIT;
        for (int32_t e = 0; e < n; e++)
            hop->out[used + e] = c->vertices[c->indices[h][from + e]];
        if (hop->weight != NULL)
            memcpy(hop->weight + used, c->weights[h] + from, (size_t)n * sizeof *hop->weight);
        used += n;
        hop->indptr[i + 1] = (int32_t)used;
    }
    return PST_OK;
}

/* types.c: types and terms of a model of relations, and the blocks of a minibatch by term. */
#include "stages/lib/gnn/types/types.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

pst_rc pst_gnn_types_of(struct pst_gnn_types *types, const struct pst_dataset *ds)
{
    *types = (struct pst_gnn_types){.types = ds->vertex_types > 0 ? ds->vertex_types : 1,
                                    .relations = ds->edge_relation.map ? (int)ds->relations : 1};
    if (ds->relations > PST_GNN_RELATIONS_MAX || ds->vertex_types > PST_ROWS_TYPES_MAX)
        return pst_fail(PST_E_LIMIT,
                        "the dataset %s has %d types of vertices and %" PRId64
                        " relations; models with relations support at most %d types and %d relations",
                        ds->dir, ds->vertex_types, ds->relations, PST_ROWS_TYPES_MAX, PST_GNN_RELATIONS_MAX);
    types->dim[0] = ds->feature_dim;
    for (int k = 0; k < ds->vertex_types; k++) {
        types->first[k] = ds->vertex_type[k].first;
        types->dim[k] = ds->vertex_type[k].feature_dim;
    }
    types->first[types->types] = ds->vertices;
    for (int r = 0; r < ds->edge_types; r++) {
        types->source[r] = ds->edge_type[r].source;
        types->target[r] = ds->edge_type[r].target;
    }
    return PST_OK;
}

void pst_gnn_terms_of(struct pst_gnn_terms *terms, const struct pst_gnn_types *types, bool each)
{
    int count[PST_ROWS_TYPES_MAX] = {0}, from[PST_ROWS_TYPES_MAX] = {0};
    *terms = (struct pst_gnn_terms){.n = 0};
    for (int k = 0; k < types->types && !each; k++)
        terms->term[terms->n++] = (struct pst_gnn_term){-1, k, k};
    for (int r = 0; r < types->relations && each; r++)
        terms->term[terms->n++] = (struct pst_gnn_term){-1, types->target[r], types->target[r]};
    for (int r = 0; r < types->relations; r++) {
        terms->term[terms->n++] = (struct pst_gnn_term){r, types->source[r], types->target[r]};
        if (++from[types->source[r]] > terms->most_from)
            terms->most_from = from[types->source[r]];
    }
    for (int k = 0; k < terms->n; k++)
        if (++count[terms->term[k].target] > terms->most)
            terms->most = count[terms->term[k].target];
}

/* ---- blocks --------------------------------------------------------------------------------------- */

void pst_gnn_typed_batch_init(struct pst_gnn_typed_batch *b, struct pst_device *device)
{
    *b = (struct pst_gnn_typed_batch){.device = device != NULL && pst_device_is_cuda(device) ? device : NULL};
}

static void give(struct pst_gnn_typed_batch *b)
{
    if (b->device != NULL)
        pst_device_give(b->device, b->memory);
    else
        free(b->memory);
    b->memory = NULL;
    b->room = 0;
}

void pst_gnn_typed_batch_release(struct pst_gnn_typed_batch *b)
{
    if (b->memory != NULL)
        give(b);
}

static pst_rc grow(struct pst_gnn_typed_batch *b, int64_t n)
{
    if (n <= b->room)
        return PST_OK;
    if (b->memory != NULL)
        give(b);
    const int64_t room = n + n / 2;
    const uint64_t bytes = (uint64_t)room * sizeof *b->memory;
    void *memory = NULL;
    pst_rc rc = PST_OK;
    if (b->device != NULL)
        rc = pst_device_take(b->device, PST_TWIN_MEMORY_PINNED, bytes, "the edges of a batch by relation",
                             &memory);
    else if ((memory = malloc(bytes)) == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot sort the edges of a batch by relation");
    b->memory = memory;
    b->room = rc == PST_OK ? room : 0;
    return rc;
}

/* One hop's arrays in the slot. */
struct hop {
    const struct pst_gnn_types *types;
    const struct pst_gnn_terms *terms;
    const int64_t *vertices;
    const int32_t *indptr, *indices, *relation;
    const pst_real *weight; /* NULL: edges have none */
    int64_t dsts;
    int first; /* the term of relation 0 */
};

static struct hop hop_of(const struct pst_gnn_types *types, const struct pst_gnn_terms *terms,
                         const struct pst_minibatch *mb, const void *slot, uint32_t h)
{
    const struct pst_minibatch *at = slot;
    return (struct hop){.types = types,
                        .terms = terms,
                        .vertices = pst_minibatch_at(at, mb->vertices_at),
                        .indptr = pst_minibatch_at(at, mb->indptr_at[h]),
                        .indices = pst_minibatch_at(at, mb->indices_at[h]),
                        .relation = pst_minibatch_at(at, mb->relations_at[h]),
                        .weight = mb->weights_at[h] != 0 ? pst_minibatch_at(at, mb->weights_at[h]) : NULL,
                        .dsts = mb->n[h],
                        .first = terms->n - types->relations};
}

static int type_of(const struct pst_gnn_types *types, int64_t vertex)
{
    int type = types->types - 1;
    while (type > 0 && vertex < types->first[type])
        type--;
    return type;
}

static pst_rc wrong_edge(const struct hop *h, int64_t d, int32_t e)
{
    return pst_fail(
        PST_E_PEER,
        "an edge of the minibatch from vertex %" PRId64 " to vertex %" PRId64
        " has relation %d, which does not join the types of these vertices, or does not exist: use "
        "the same dataset for all stages",
        h->vertices[h->indices[e]], h->vertices[d], h->relation[e]);
}

/* Counts the destinations and edges of each term. Edges of a destination need not be in the order of their
 * relations. */
static pst_rc count_hop(const struct hop *h, struct pst_gnn_term_block *block)
{
    int64_t last[PST_GNN_TERMS_MAX];
    for (int k = 0; k < h->terms->n; k++) {
        block[k] = (struct pst_gnn_term_block){.dsts = 0};
        last[k] = -1;
    }
    for (int64_t d = 0; d < h->dsts; d++) {
        const int type = type_of(h->types, h->vertices[d]);
        for (int k = 0; k < h->first; k++)
            block[k].dsts += h->terms->term[k].target == type;
        for (int32_t e = h->indptr[d]; e < h->indptr[d + 1]; e++) {
            const int32_t r = h->relation[e];
            if (r >= h->types->relations || h->types->target[r] != type ||
                h->types->source[r] != type_of(h->types, h->vertices[h->indices[e]]))
                return wrong_edge(h, d, e);
            const int k = h->first + r;
            block[k].dsts += last[k] != d;
            block[k].edges++;
            last[k] = d;
        }
    }
    for (int k = 0; k < h->first; k++)
        block[k].edges = block[k].dsts;
    return PST_OK;
}

/* The numbers that a block takes; an own term shares its destinations, and `identity` is its indptr. */
static int64_t block_room(const struct hop *h, int k, const struct pst_gnn_term_block *block)
{
    return k < h->first ? block->dsts : 2 * block->dsts + 1 + block->edges * (h->terms->compact ? 3 : 1);
}

/* The reals that a block takes. */
static int64_t block_reals(const struct hop *h, int k, const struct pst_gnn_term_block *block)
{
    return k < h->first || h->weight == NULL ? 0 : block->edges;
}

struct writer { /* of one block */
    int32_t *dst, *indptr, *indices;
    pst_real *weight; /* NULL: edges have none */
    int64_t dsts, edges;
};

/* Gives every block its place from *to on, and from *real on. */
static void place_hop(const struct hop *h, struct pst_gnn_term_block *block, struct writer *w,
                      int32_t *identity, int32_t **to, pst_real **real)
{
    for (int k = 0; k < h->terms->n; k++) {
        w[k] = (struct writer){.dst = *to};
        w[k].indptr = k < h->first ? identity : w[k].dst + block[k].dsts;
        w[k].indices = k < h->first ? w[k].dst : w[k].indptr + block[k].dsts + 1;
        *to += block_room(h, k, &block[k]);
        w[k].weight = block_reals(h, k, &block[k]) > 0 ? *real : NULL;
        *real += block_reals(h, k, &block[k]);
        block[k].weight = w[k].weight;
        block[k].dst = w[k].dst;
        block[k].indptr = w[k].indptr;
        block[k].indices = w[k].indices;
    }
}

static void write_hop(const struct hop *h, struct writer *w)
{
    for (int64_t d = 0; d < h->dsts; d++) {
        const int type = type_of(h->types, h->vertices[d]);
        for (int k = 0; k < h->first; k++)
            if (h->terms->term[k].target == type)
                w[k].dst[w[k].dsts++] = (int32_t)d;
        for (int32_t e = h->indptr[d]; e < h->indptr[d + 1]; e++) {
            struct writer *of = &w[h->first + h->relation[e]];
            if (of->dsts == 0 || of->dst[of->dsts - 1] != d) {
                of->indptr[of->dsts] = (int32_t)of->edges;
                of->dst[of->dsts++] = (int32_t)d;
            }
            if (of->weight != NULL)
                of->weight[of->edges] = h->weight[e];
            of->indices[of->edges++] = h->indices[e];
        }
    }
    for (int k = h->first; k < h->terms->n; k++)
        w[k].indptr[w[k].dsts] = (int32_t)w[k].edges;
}

/* The weights of each destination's edges become shares of their sum. If it is 0, they are equal. */
static void share(const struct pst_gnn_term_block *block, pst_real *weight)
{
    for (int64_t i = 0; i < block->dsts; i++) {
        double sum = 0;
        for (int32_t e = block->indptr[i]; e < block->indptr[i + 1]; e++)
            sum += (double)weight[e];
        for (int32_t e = block->indptr[i]; e < block->indptr[i + 1]; e++)
            weight[e] = (pst_real)(sum > 0 ? (double)weight[e] / sum
                                           : 1.0 / (double)(block->indptr[i + 1] - block->indptr[i]));
    }
}

/* Lists the distinct sources of a relation, behind its edges. mark: 0 for each row, as it is again at the
 * end. */
static void compact(struct pst_gnn_term_block *block, int32_t *mark, int32_t *to)
{
    int32_t *src = to, *local = to + block->edges;
    block->srcs = 0;
    for (int64_t e = 0; e < block->edges; e++) {
        int32_t *m = &mark[block->indices[e]];
        if (*m == 0) {
            src[block->srcs++] = block->indices[e];
            *m = (int32_t)block->srcs;
        }
        local[e] = *m - 1;
    }
    for (int64_t i = 0; i < block->srcs; i++)
        mark[src[i]] = 0;
    block->src = src;
    block->local = local;
}

pst_rc pst_gnn_typed_batch_fill(struct pst_gnn_typed_batch *b, const struct pst_gnn_types *types,
                                const struct pst_gnn_terms *terms, const struct pst_minibatch *mb,
                                const void *slot)
{
    struct writer w[PST_GNN_TERMS_MAX];
    const int64_t identity = mb->n[terms->compact ? mb->hops : mb->hops - 1] + 1,
                  marks = terms->compact ? mb->n[mb->hops] : 0;
    int64_t room = identity + marks, reals = 0;
    pst_rc rc = PST_OK;
    for (uint32_t h = 0; h < mb->hops && rc == PST_OK; h++) {
        if (mb->relations_at[h] == 0)
            return pst_fail(PST_E_PEER,
                            "the minibatch has no relations (types of edges), which the model needs: set the "
                            "parameter algorithm of the planner and the sampler to typed");
        const struct hop hop = hop_of(types, terms, mb, slot, h);
        rc = count_hop(&hop, b->block[h]);
        for (int k = 0; k < terms->n && rc == PST_OK; k++) {
            room += block_room(&hop, k, &b->block[h][k]);
            reals += block_reals(&hop, k, &b->block[h][k]);
        }
    }
    room += room & 1; /* the reals come last, and lie on a multiple of their size */
    if (rc == PST_OK)
        rc = grow(b, room + reals * (int64_t)(sizeof(pst_real) / sizeof *b->memory));
    if (rc != PST_OK)
        return rc;
    for (int64_t i = 0; i < identity; i++)
        b->memory[i] = (int32_t)i;
    b->identity = b->memory;
    int32_t *mark = b->memory + identity, *to = mark + marks;
    pst_real *real = (pst_real *)(void *)(b->memory + room);
    memset(mark, 0, (size_t)marks * sizeof *mark);
    for (uint32_t h = 0; h < mb->hops; h++) {
        const struct hop hop = hop_of(types, terms, mb, slot, h);
        place_hop(&hop, b->block[h], w, b->memory, &to, &real);
        write_hop(&hop, w);
        for (int k = hop.first; k < terms->n; k++)
            if (w[k].weight != NULL)
                share(&b->block[h][k], w[k].weight);
        for (int k = hop.first; k < terms->n && terms->compact; k++)
            compact(&b->block[h][k], mark, w[k].indices + b->block[h][k].edges);
    }
    return PST_OK;
}

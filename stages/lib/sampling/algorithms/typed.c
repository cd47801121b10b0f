/* typed.c: uniform sampling for each relation: a vertex gets `fanout` in-neighbours of each of its relations.
 * A relation and a vertex together are drawn for as one vertex of a graph without types, so a graph of one
 * relation gets the sample that `uniform` draws. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/store.h"
#include "stages/lib/sampling/algorithms/algorithms.h"

#define RELATIONS_MAX 1024 /* each takes memory; more are those of knowledge graphs */

struct typed {
    struct pst_ints fanouts;    /* of each relation; none: the fanout of the hop */
    const int64_t *by_relation; /* (relations, hops), or NULL: as in pst_sampling_setup */
    int hops;
    const struct pst_dataset *dataset;
    const int32_t *relation; /* of each entry of the graph's lists; NULL: there is one relation */
    int relations;
    bool replace;
    int64_t *degree;       /* of the vertex's relations, and where they begin in `entry` */
    int64_t *begin;        /* relations + 1 */
    int64_t *id, *degrees; /* of the relations that the vertex has: what is drawn for */
    int32_t *of;           /* which relations these are */
    int32_t *indptr;
    int64_t *entry; /* places in the vertex's list, by relation */
    int64_t entries;
    int64_t *position;
    int64_t positions;
};

static const struct pst_sampling_option options[] = {
    {.name = "fanouts",
     .type = PST_PARAM_INTS,
     .min = -1,
     .max = PST_FANOUT_MAX,
     .into = offsetof(struct typed, fanouts),
     .help =
         "number of neighbours of each relation in every hop, in the order of the dataset's relations, for "
         "example 10:5:0; replaces fanout"},
    {0},
};

/* The fanout of a relation. fanout: of the hop. */
static int64_t fanout_of(const struct typed *t, int relation, int hop, int64_t fanout)
{
    if (t->by_relation != NULL)
        return t->by_relation[(int64_t)relation * t->hops + hop];
    return t->fanouts.count > 0 ? t->fanouts.value[relation] : fanout;
}

/* How many neighbours a vertex of this type can get; -1: all. type: -1: all relations can lead to the vertex.
 */
static int64_t most_of_type(const struct typed *t, int type, int hop, int64_t fanout)
{
    int64_t most = 0;
    for (int r = 0; r < t->relations; r++) {
        const int64_t more = fanout_of(t, r, hop, fanout);
        if (type >= 0 && t->dataset->edge_type[r].target != type)
            continue;
        if (more < 0)
            return -1;
        most += more;
    }
    return most;
}

/* The same of any vertex. */
static int64_t most_of_any(const struct typed *t, int hop, int64_t fanout)
{
    const int types = t->relation != NULL ? t->dataset->vertex_types : 0;
    int64_t most = types == 0 ? most_of_type(t, -1, hop, fanout) : 0;
    for (int type = 0; type < types && most >= 0; type++) {
        const int64_t of = most_of_type(t, type, hop, fanout);
        most = of < 0 ? of : pst_max_i64(most, of);
    }
    return most;
}

static pst_rc open_typed(void *state, const struct pst_sampling_setup *setup)
{
    struct typed *t = state;
    const struct pst_dataset *ds = setup->dataset;
    if (ds->relations > RELATIONS_MAX)
        return pst_fail(PST_E_LIMIT,
                        "the dataset %s has %lld relations; the algorithm typed supports at most %d", ds->dir,
                        (long long)ds->relations, RELATIONS_MAX);
    if (t->fanouts.count > 0 && t->fanouts.count != (uint32_t)pst_max_i64(1, ds->relations))
        return pst_fail(PST_E_ARG,
                        "options: fanouts has %u numbers, but the dataset %s has %lld relations: give one "
                        "number for each relation (`penstock inspect` lists the relations)",
                        (unsigned)t->fanouts.count, ds->dir, (long long)pst_max_i64(1, ds->relations));
    if (t->fanouts.count > 0 && setup->fanout_by_relation != NULL)
        return pst_fail(PST_E_ARG,
                        "options: fanouts cannot be set, because the parameter fanout has numbers for "
                        "each edge type already: remove one of them");
    t->by_relation = setup->fanout_by_relation;
    t->hops = setup->hops;
    t->dataset = ds;
    t->relation = ds->edge_relation.map;
    t->relations = t->relation != NULL ? (int)ds->relations : 1;
    t->replace = setup->replace;
    const size_t n = (size_t)t->relations;
    t->degree = calloc(n, sizeof *t->degree);
    t->begin = calloc(n + 1, sizeof *t->begin);
    t->id = calloc(n, sizeof *t->id);
    t->degrees = calloc(n, sizeof *t->degrees);
    t->of = calloc(n, sizeof *t->of);
    t->indptr = calloc(n + 1, sizeof *t->indptr);
    return t->degree != NULL && t->begin != NULL && t->id != NULL && t->degrees != NULL && t->of != NULL &&
                   t->indptr != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot sample %d relations", t->relations);
}

static void close_typed(void *state)
{
    struct typed *t = state;
    free(t->degree);
    free(t->begin);
    free(t->id);
    free(t->degrees);
    free(t->of);
    free(t->indptr);
    free(t->entry);
    free(t->position);
}

static int traits(const void *state)
{
    (void)state;
    return PST_SAMPLING_TYPED;
}

static struct pst_sampling_bound bound(const void *state, const struct pst_csc *graph, int hop,
                                       int64_t fanout, int64_t n)
{
    const struct typed *t = state;
    if (fanout == 0) /* nothing is drawn in such a hop */
        return (struct pst_sampling_bound){.edges = 0, .vertices = n};
    const int64_t most = most_of_any(t, hop, fanout);
    const int64_t edges = most < 0 ? graph->edges : pst_min_i64(PST_MINIBATCH_COUNT_MAX, n * most);
    return (struct pst_sampling_bound){.edges = edges, .vertices = n + edges};
}

/* Makes room for n numbers, whose old values are not kept. */
static pst_rc grow(int64_t **array, int64_t *room, int64_t n)
{
    if (n <= *room)
        return PST_OK;
    int64_t *more = malloc((size_t)(2 * n) * sizeof *more);
    if (more == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot sort the %lld neighbours of a vertex by relation",
                        (long long)n);
    free(*array);
    *array = more;
    *room = 2 * n;
    return PST_OK;
}

/* Sorts the places of a list by relation, in their order. Returns in *n how many relations there are. */
static pst_rc sort_list(struct typed *t, int64_t first, int64_t degree, int64_t vertex, int64_t *n)
{
    const int32_t *relation = t->relation != NULL ? t->relation + first : NULL;
    pst_rc rc = grow(&t->entry, &t->entries, degree);
    if (rc != PST_OK)
        return rc;
    memset(t->degree, 0, (size_t)t->relations * sizeof *t->degree);
    for (int64_t e = 0; e < degree; e++) {
        const int32_t r = relation != NULL ? relation[e] : 0;
        if (r < 0 || r >= t->relations)
            return pst_fail(PST_E_FORMAT,
                            "%s: an edge of vertex %lld has relation %d, but there are only %d relations; "
                            "`penstock verify` shows details",
                            t->dataset->edge_relation.path, (long long)vertex, r, t->relations);
        t->degree[r]++;
    }
    *n = 0;
    for (int r = 0; r < t->relations; r++) {
        t->begin[r + 1] = t->begin[r] + t->degree[r];
        if (t->degree[r] == 0)
            continue;
        t->of[*n] = r;
        t->degrees[*n] = t->degree[r];
        t->id[(*n)++] = vertex * t->relations + r;
    }
    for (int64_t e = 0; e < degree; e++) {
        const int32_t r = relation != NULL ? relation[e] : 0;
        t->entry[t->begin[r] + --t->degree[r]] = e;
    }
    return PST_OK;
}

/* The place of a draw: entries of a relation are in falling order. */
static int64_t place_of(const struct typed *t, int32_t r, int64_t position)
{
    return t->entry[t->begin[r + 1] - 1 - position];
}

static int64_t id_at(const struct pst_csc *graph, int64_t e)
{
    return graph->index_bytes == 4 ? ((const int32_t *)graph->indices)[e]
                                   : ((const int64_t *)graph->indices)[e];
}

/* Draws places for the relations from `from` to `to` of those that the vertex has. */
static pst_rc pick(struct typed *t, const struct pst_sampling_hop *h, int64_t from, int64_t to, int fanout)
{
    const int64_t n = to - from;
    int64_t most = 0;
    for (int64_t i = from; i < to; i++)
        most += fanout < 0 ? t->degrees[i] : fanout; /* with replacement, more than the degree */
    pst_rc rc = grow(&t->position, &t->positions, most);
    return rc != PST_OK ? rc
                        : pst_k_pick(NULL, h->key, t->id + from, t->degrees + from, n, fanout, t->replace,
                                     t->indptr, t->position, t->positions);
}

/* Writes what was picked. */
static pst_rc write_edges(const struct typed *t, const struct pst_sampling_hop *h, int64_t first,
                          int64_t from, int64_t to, int64_t *used)
{
    if (t->indptr[to - from] > h->capacity - *used)
        return PST_E_LIMIT;
    for (int64_t i = from; i < to; i++) {
        for (int32_t e = t->indptr[i - from]; e < t->indptr[i - from + 1]; e++, ++*used) {
            h->out[*used] = id_at(h->graph, first + place_of(t, t->of[i], t->position[e]));
            if (h->relation != NULL)
                h->relation[*used] = t->of[i];
        }
    }
    return PST_OK;
}

static pst_rc draw_vertex(struct typed *t, const struct pst_sampling_hop *h, int64_t vertex, int64_t *used)
{
    const int64_t first = h->graph->indptr[vertex], degree = h->graph->indptr[vertex + 1] - first;
    const bool each = t->fanouts.count > 0 || t->by_relation != NULL; /* one relation after the other */
    int64_t n = 0;
    pst_rc rc = sort_list(t, first, degree, vertex, &n);
    for (int64_t from = 0, to; from < n && rc == PST_OK; from = to) {
        const int fanout = (int)fanout_of(t, t->of[from], (int)h->key->hop, h->fanout);
        to = each ? from + 1 : n;
        rc = fanout != 0 ? pick(t, h, from, to, fanout) : PST_OK;
        if (rc == PST_OK && fanout != 0)
            rc = write_edges(t, h, first, from, to, used);
    }
    return rc;
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    int64_t used = 0;
    pst_rc rc = PST_OK;
    h->indptr[0] = 0;
    for (int64_t i = 0; i < h->n && rc == PST_OK; i++) {
        rc = draw_vertex(state, h, h->vertices[i], &used);
        h->indptr[i + 1] = (int32_t)used;
    }
    return rc;
}

const struct pst_sampling_algorithm pst_sampling_typed = {
    .abi = PST_SAMPLING_ABI,
    .name = "typed",
    .help = "draws neighbours separately for each relation of a vertex",
    .options = options,
    .state_bytes = sizeof(struct typed),
    .open = open_typed,
    .close = close_typed,
    .traits = traits,
    .bound = bound,
    .draw = draw,
};

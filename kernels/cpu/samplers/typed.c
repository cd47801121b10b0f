/* typed.c: uniform sampling within each relation of a vertex. A list is read twice: first its entries are
 * counted by relation and the positions among these are drawn; then the entries at these positions are
 * written. */
#include "kernels/cpu/samplers/csc_list.h"
#include "kernels/cpu/samplers/floyd.h"
#include "kernels/samplers.h"

#include <stdlib.h>
#include <string.h>

enum { SLOT_BITS = 12 }; /* of a draw's number, behind its position */
_Static_assert(PST_FANOUT_MAX <= 1 << SLOT_BITS, "draws of a relation have numbers of SLOT_BITS bits");

struct typed {
    const struct pst_csc *graph;
    const struct pst_k_typed *how;
    struct pst_rng_stream stream;
    int32_t until;          /* of the vertex, if entries have times */
    int64_t *degree, *seen; /* of each relation: entries of the list, and those that were met */
    int64_t *start, *taken; /* where its draws go, and how many there are */
    int64_t *written;       /* how many of its draws are in `out` */
    int64_t *place;  /* of its first draw in `sorted`; -1: nothing is drawn, all entries or none are taken */
    int64_t *sorted; /* position << SLOT_BITS | number of the draw, by relation */
};

static struct typed typed_of(const struct pst_csc *graph, const struct pst_k_typed *how,
                             const struct pst_sample_key *key, int64_t *scratch)
{
    const int64_t r = how->relations;
    return (struct typed){.graph = graph,
                          .how = how,
                          .stream =
                              pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop),
                          .degree = scratch,
                          .seen = scratch + r,
                          .start = scratch + 2 * r,
                          .taken = scratch + 3 * r,
                          .written = scratch + 4 * r,
                          .place = scratch + 5 * r,
                          .sorted = scratch + 6 * r};
}

static int32_t relation_of(const struct typed *t, int64_t entry)
{
    return t->how->relation != NULL ? t->how->relation[entry] : 0;
}

/* Is the entry early enough, and in a resident partition? A wrong id is there, so that it is found when it is
 * drawn. */
static bool is_there(const struct typed *t, int64_t entry)
{
    if (t->how->time != NULL && t->how->time[entry] > t->until)
        return false;
    if (t->how->partition == NULL)
        return true;
    const int64_t id = pst_cpu_list_at(t->graph, entry);
    return !pst_cpu_list_knows(t->graph, id) || pst_k_is_resident(t->how, id);
}

/* Counts a list's entries by relation. False: an entry has a relation that does not exist. */
static bool count(const struct typed *t, struct pst_cpu_list list)
{
    memset(t->degree, 0, (size_t)t->how->relations * sizeof *t->degree);
    for (int64_t e = 0; e < list.degree; e++) {
        const int32_t r = relation_of(t, list.begin + e);
        if (r < 0 || r >= t->how->relations)
            return false;
        t->degree[r] += is_there(t, list.begin + e);
    }
    return true;
}

/* Decides how many draws each relation gets, and where they go. Returns how many there are. */
static int64_t plan(const struct typed *t)
{
    int64_t total = 0, drawn = 0;
    for (int r = 0; r < t->how->relations; r++) {
        const int64_t degree = t->degree[r], fanout = t->how->fanout[r];
        const bool all = fanout < 0 || degree == 0 || (!t->how->replace && degree <= fanout);
        t->start[r] = total;
        t->taken[r] = all ? degree : fanout;
        t->place[r] = all || fanout == 0 ? -1 : drawn;
        total += t->taken[r];
        drawn += t->place[r] >= 0 ? fanout : 0;
    }
    return total;
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the draws of one relation by position. */
static void sort(int64_t *draws, int64_t n)
{
    enum { FEW = 32 };
    for (int64_t i = 0; i < n; i++)
        draws[i] = draws[i] << SLOT_BITS | i;
    if (n > FEW) {
        qsort(draws, (size_t)n, sizeof *draws, ascending);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        const int64_t draw = draws[i];
        int64_t at = i;
        for (; at > 0 && draws[at - 1] > draw; at--)
            draws[at] = draws[at - 1];
        draws[at] = draw;
    }
}

/* Draws positions for the relations that need it. */
static void pick(const struct typed *t, int64_t vertex)
{
    for (int r = 0; r < t->how->relations; r++) {
        if (t->place[r] < 0)
            continue;
        int64_t *draws = t->sorted + t->place[r];
        (void)pst_cpu_list_draw_positions(&t->stream, vertex * t->how->relations + r, t->degree[r],
                                          t->how->fanout[r], t->how->replace, draws, t->taken[r]);
        sort(draws, t->taken[r]);
    }
}

/* Writes entry e of the list to the places of the draws that have its position. False: it is not the id of a
 * vertex. */
static bool put(const struct typed *t, int64_t entry, int64_t *out)
{
    const int32_t r = relation_of(t, entry);
    const bool all = t->place[r] < 0;
    const int64_t position = t->seen[r]++, *draws = t->sorted + (all ? 0 : t->place[r]);
    if (all ? t->taken[r] == 0
            : t->written[r] == t->taken[r] || draws[t->written[r]] >> SLOT_BITS != position)
        return true;
    const int64_t id = pst_cpu_list_at(t->graph, entry);
    if (all)
        out[t->start[r] + position] = id;
    for (; !all && t->written[r] < t->taken[r] && draws[t->written[r]] >> SLOT_BITS == position;
         t->written[r]++)
        out[t->start[r] + (draws[t->written[r]] & ((1 << SLOT_BITS) - 1))] = id;
    return pst_cpu_list_knows(t->graph, id);
}

static bool write_edges(const struct typed *t, struct pst_cpu_list list, int64_t *out, int32_t *relation)
{
    bool known = true;
    memset(t->seen, 0, (size_t)t->how->relations * sizeof *t->seen);
    memset(t->written, 0, (size_t)t->how->relations * sizeof *t->written);
    for (int64_t e = list.begin; e < list.begin + list.degree; e++)
        known &= !is_there(t, e) || put(t, e, out);
    for (int32_t r = 0; relation != NULL && r < t->how->relations; r++)
        for (int64_t i = 0; i < t->taken[r]; i++)
            relation[t->start[r] + i] = r;
    return known;
}

/* Writes the neighbours of one vertex. Returns how many, or an error. */
static int64_t sample_vertex(const struct typed *t, int64_t vertex, int64_t *out, int32_t *relation,
                             int64_t room)
{
    struct pst_cpu_list list;
    if (!pst_cpu_list_of(t->graph, vertex, &list) || !count(t, list))
        return PST_E_FORMAT;
    const int64_t taken = plan(t);
    if (taken > room)
        return PST_E_LIMIT;
    pick(t, vertex);
    return taken == 0 || write_edges(t, list, out, relation) ? taken : PST_E_FORMAT;
}

pst_rc pst_k_sample_typed(struct pst_queue *q, const struct pst_csc *graph, const struct pst_k_typed *how,
                          const struct pst_sample_key *key, const int64_t *vertices, int64_t n,
                          int64_t *scratch, int32_t *indptr, int64_t *out, int32_t *relation,
                          int64_t capacity)
{
    assert(q == NULL && n >= 0 && capacity >= 0 && scratch != NULL);
    assert(how->relations >= 1 && how->relations <= PST_K_RELATIONS_MAX);
    (void)q;
    struct typed t = typed_of(graph, how, key, scratch);
    int64_t used = 0;
    capacity = pst_min_i64(capacity, INT32_MAX);
    indptr[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        t.until = how->until != NULL ? how->until[i] : 0;
        const int64_t taken = sample_vertex(&t, vertices[i], out + used,
                                            relation != NULL ? relation + used : NULL, capacity - used);
        if (taken < 0)
            return (pst_rc)taken;
        used += taken;
        indptr[i + 1] = (int32_t)used;
    }
    return PST_OK;
}

/* draws.c: one exchange of vertices and of their drawn neighbours with all ranks. */
#include "stages/remote_sampler/draws.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "kernels/kernels.h"

/* Before the vertices: is the batch complete on the rank that asks, and which draws are these? */
enum { COMPLETE, SEED, EPOCH_HOP, BATCH, FANOUT, HEAD };

static pst_rc need(struct pst_memory_buffer *buffer, uint64_t bytes)
{
    return pst_memory_need(buffer, bytes, "exchange with other ranks");
}

void draws_release(struct draws *d)
{
    free(d->words.at);
    free(d->asked.at);
    free(d->reply.at);
    free(d->got.at);
    free(d->own.at);
    free(d->degrees.at);
    free(d->offsets.at);
}

static uint64_t *words_of(const struct pst_memory_buffer *room)
{
    return (uint64_t *)(void *)room->at;
}

/* ---- what is asked ------------------------------------------------------------------------------- */

struct round {
    uint64_t wants[PST_DATASET_PARTS_MAX]; /* vertices of each rank */
    uint64_t give[PST_DATASET_PARTS_MAX], take[PST_DATASET_PARTS_MAX];
    uint64_t items[PST_DATASET_PARTS_MAX]; /* neighbours for each rank */
};

static int owner_of(const struct draws *d, int64_t vertex)
{
    const struct pst_dataset_cut *cut = &d->ds->cut;
    int part = 0;
    if (d->ranks == 1)
        return d->rank;
    while (vertex >= cut->first[part + 1])
        part++;
    return part;
}

static int64_t degree_of(const struct draws *d, int64_t vertex)
{
    const int64_t *indptr = d->ds->indptr.map;
    return indptr[vertex + 1] - indptr[vertex];
}

/* How many of a list are drawn. */
static int64_t taken_of(const struct draws *d, int64_t vertex, int64_t fanout)
{
    const int64_t degree = degree_of(d, vertex);
    return fanout < 0 ? degree : pst_min_i64(degree, fanout);
}

/* hop NULL: this rank needs nothing more for the batch. */
static pst_rc sort_wants(struct draws *d, const struct pst_sampling_hop *hop, struct round *now)
{
    const int64_t n = hop != NULL ? hop->n : 0;
    uint64_t at[PST_DATASET_PARTS_MAX] = {0}, place = 0, own = 0;
    for (int64_t i = 0; i < n; i++)
        now->wants[owner_of(d, hop->vertices[i])]++;
    pst_rc rc = need(&d->words, ((uint64_t)n + (uint64_t)d->ranks * HEAD) * sizeof(uint64_t));
    if (rc == PST_OK)
        rc = need(&d->own, now->wants[d->rank] * sizeof(int64_t) + 1);
    if (rc != PST_OK)
        return rc;
    uint64_t *words = words_of(&d->words);
    int64_t *mine = (int64_t *)(void *)d->own.at;
    for (int k = 0; k < d->ranks; k++) {
        now->give[k] = k == d->rank ? 0 : HEAD + now->wants[k];
        if (k == d->rank)
            continue;
        uint64_t *head = words + place;
        memset(head, 0, HEAD * sizeof *head);
        head[COMPLETE] = hop == NULL;
        if (hop != NULL) {
            head[SEED] = hop->key->seed;
            head[EPOCH_HOP] = (uint64_t)hop->key->epoch << 32 | hop->key->hop;
            head[BATCH] = hop->key->batch;
            head[FANOUT] = (uint64_t)(int64_t)hop->fanout;
        }
        at[k] = place + HEAD;
        place += now->give[k];
    }
    for (int64_t i = 0; i < n; i++) {
        const int k = owner_of(d, hop->vertices[i]);
        if (k == d->rank)
            mine[own++] = hop->vertices[i];
        else
            words[at[k]++] = (uint64_t)hop->vertices[i];
    }
    return PST_OK;
}

static void *room_for_words(void *to, uint64_t items)
{
    struct draws *d = to;
    return need(&d->asked, items * sizeof(uint64_t) + 1) == PST_OK ? d->asked.at : NULL;
}

static void *room_for_neighbours(void *to, uint64_t items)
{
    struct draws *d = to;
    return need(&d->got, items * sizeof(uint64_t) + 1) == PST_OK ? d->got.at : NULL;
}

static pst_rc ask(struct draws *d, struct round *now)
{
    const struct pst_collective_parcels parcels = {.unit = sizeof(uint64_t),
                                                   .give = now->give,
                                                   .given = d->words.at,
                                                   .take = now->take,
                                                   .room = room_for_words,
                                                   .to = d};
    const double begin = pst_now();
    const pst_rc rc = pst_collective_all_to_all(d->collective, &parcels);
    d->counts.wait_s += pst_now() - begin;
    const uint64_t *head = words_of(&d->asked);
    for (int k = 0; k < d->ranks && rc == PST_OK; head += now->take[k++]) {
        if (k == d->rank)
            continue;
        if (now->take[k] < HEAD)
            return pst_fail(PST_E_PEER,
                            "rank %d sent %" PRIu64 " words in place of %d: are all from the same build?", k,
                            now->take[k], HEAD);
        d->all = d->all && head[COMPLETE] != 0;
    }
    return rc;
}

/* ---- drawing ------------------------------------------------------------------------------------- */

/* Writes the drawn neighbours of vertices of the own part, one after the other, to out. Returns how many in
 * *drawn; there is room for them. */
static pst_rc draw(struct draws *d, const struct pst_sample_key *key, const int64_t *vertices, int64_t n,
                   int fanout, uint64_t *out, int64_t room, int64_t *drawn)
{
    const struct pst_dataset_cut *cut = &d->ds->cut;
    const int64_t first_edge = cut->lists ? cut->first_edge[cut->part] : 0, *indptr = d->ds->indptr.map;
    pst_rc rc = need(&d->degrees, (uint64_t)n * sizeof(int64_t) + 1);
    if (rc == PST_OK)
        rc = need(&d->offsets, ((uint64_t)n + 1) * sizeof(int32_t));
    if (rc != PST_OK)
        return rc;
    int64_t *degrees = (int64_t *)(void *)d->degrees.at, *positions = (int64_t *)(void *)out;
    int32_t *offsets = (int32_t *)(void *)d->offsets.at;
    for (int64_t i = 0; i < n; i++)
        degrees[i] = degree_of(d, vertices[i]);
    rc = pst_k_pick(NULL, key, vertices, degrees, n, fanout, false, offsets, positions, room);
    if (rc != PST_OK)
        return pst_fail(rc,
                        "cannot draw the neighbours of %" PRId64 " vertices: the topology is damaged "
                        "(`penstock verify` shows details)",
                        n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t begin = indptr[vertices[i]] - first_edge;
        for (int32_t e = offsets[i]; e < offsets[i + 1]; e++)
            out[e] = d->ds->indices.dtype == PST_I32
                         ? (uint64_t)((const int32_t *)d->ds->indices.map)[begin + positions[e]]
                         : (uint64_t)((const int64_t *)d->ds->indices.map)[begin + positions[e]];
    }
    *drawn = offsets[n];
    return PST_OK;
}

/* The vertices must be of this part, and their lists within its indices. */
static pst_rc count_draws(const struct draws *d, const int64_t *vertices, int64_t n, int64_t fanout,
                          int64_t *sum)
{
    const struct pst_dataset_cut *cut = &d->ds->cut;
    const int64_t first = cut->lists ? cut->first[cut->part] : 0,
                  end = cut->lists ? cut->first[cut->part + 1] : d->ds->vertices;
    const int64_t *indptr = d->ds->indptr.map, from = cut->lists ? cut->first_edge[cut->part] : 0,
                  to = cut->lists ? cut->first_edge[cut->part + 1] : d->ds->edges;
    *sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t v = vertices[i];
        if (v < first || v >= end)
            return pst_fail(PST_E_PEER,
                            "another rank asked for neighbours of vertex %" PRId64
                            ", but this part has the vertices from %" PRId64 " to %" PRId64
                            ": give all ranks the parts of one cut",
                            v, first, end - 1);
        if (indptr[v] < from || indptr[v + 1] < indptr[v] || indptr[v + 1] > to)
            return pst_fail(PST_E_FORMAT,
                            "%s gives vertex %" PRId64 " the edges %" PRId64 " to %" PRId64
                            ", but the part has the edges from %" PRId64 " to %" PRId64
                            ": `penstock verify` shows details",
                            d->ds->indptr.path, v, indptr[v], indptr[v + 1], from, to);
        *sum += taken_of(d, v, fanout);
    }
    return *sum <= INT32_MAX
               ? PST_OK
               : pst_fail(PST_E_LIMIT,
                          "%" PRId64 " neighbours would be drawn at once, which is too many: make "
                          "batches or fanouts smaller",
                          *sum);
}

/* Draws for the other ranks. */
static pst_rc serve(struct draws *d, struct round *now)
{
    const double begin = pst_now();
    int64_t sums[PST_DATASET_PARTS_MAX] = {0}, total = 0, drawn = 0;
    const uint64_t *head = words_of(&d->asked);
    pst_rc rc = PST_OK;
    for (int k = 0; k < d->ranks && rc == PST_OK; head += now->take[k++]) {
        if (k == d->rank)
            continue;
        const int64_t n = (int64_t)(now->take[k] - HEAD), fanout = (int64_t)head[FANOUT];
        if (n > 0 && (fanout < -1 || fanout == 0 || fanout > PST_FANOUT_MAX))
            rc =
                pst_fail(PST_E_PEER, "rank %d asked for %" PRId64 " neighbours: are all from the same build?",
                         k, fanout);
        if (rc == PST_OK)
            rc = count_draws(d, (const int64_t *)(const void *)(head + HEAD), n, fanout, &sums[k]);
        total += sums[k];
    }
    if (rc == PST_OK)
        rc = need(&d->reply, (uint64_t)total * sizeof(uint64_t) + 1);
    uint64_t *out = words_of(&d->reply);
    head = words_of(&d->asked);
    for (int k = 0; k < d->ranks && rc == PST_OK; head += now->take[k++]) {
        now->items[k] = 0;
        if (k == d->rank || now->take[k] == HEAD)
            continue;
        const struct pst_sample_key key = {.seed = head[SEED],
                                           .epoch = (uint32_t)(head[EPOCH_HOP] >> 32),
                                           .hop = (uint32_t)head[EPOCH_HOP],
                                           .batch = head[BATCH]};
        const int64_t n = (int64_t)(now->take[k] - HEAD);
        rc = draw(d, &key, (const int64_t *)(const void *)(head + HEAD), n, (int)(int64_t)head[FANOUT], out,
                  sums[k], &drawn);
        now->items[k] = (uint64_t)drawn;
        out += drawn;
        d->counts.served[k] += (uint64_t)n;
        d->counts.drawn[k] += (uint64_t)drawn;
    }
    d->counts.draw_s += pst_now() - begin;
    return rc;
}

static pst_rc exchange(struct draws *d, struct round *now)
{
    const struct pst_collective_parcels parcels = {.unit = sizeof(uint64_t),
                                                   .give = now->items,
                                                   .given = d->reply.at,
                                                   .take = now->take,
                                                   .room = room_for_neighbours,
                                                   .to = d};
    const double begin = pst_now();
    const pst_rc rc = pst_collective_all_to_all(d->collective, &parcels);
    d->counts.exchange_s += pst_now() - begin;
    return rc;
}

/* One round with all ranks. */
static pst_rc meet(struct draws *d, const struct pst_sampling_hop *hop, struct round *now)
{
    d->all = hop == NULL;
    pst_rc rc = sort_wants(d, hop, now);
    if (d->ranks > 1 && rc == PST_OK)
        rc = ask(d, now);
    if (d->ranks > 1 && rc == PST_OK)
        rc = serve(d, now);
    if (d->ranks > 1 && rc == PST_OK)
        rc = exchange(d, now);
    if (rc != PST_OK)
        return rc;
    d->counts.rounds++;
    d->counts.own_vertices += now->wants[d->rank];
    for (int k = 0; k < d->ranks; k++)
        d->counts.asked[k] += k == d->rank ? 0 : now->wants[k];
    return PST_OK;
}

/* ---- the hop ------------------------------------------------------------------------------------- */

/* Puts the neighbours of all vertices together, in the order of the vertices. own: drawn for the own part. */
static pst_rc merge(const struct draws *d, const struct pst_sampling_hop *hop, const struct round *now,
                    const uint64_t *own)
{
    const uint64_t *from[PST_DATASET_PARTS_MAX] = {NULL}, *end[PST_DATASET_PARTS_MAX] = {NULL},
                   *at = words_of(&d->got);
    for (int k = 0; k < d->ranks; k++) {
        from[k] = k == d->rank ? own : at;
        at += k == d->rank ? 0 : now->take[k];
        end[k] = at;
    }
    hop->indptr[0] = 0;
    for (int64_t i = 0; i < hop->n; i++) {
        const int64_t v = hop->vertices[i], n = taken_of(d, v, hop->fanout);
        const int k = owner_of(d, v);
        if (n > hop->capacity - hop->indptr[i])
            return pst_fail(PST_E_LIMIT, "the neighbours of a hop do not fit their slot");
        if (from[k] == NULL || (k != d->rank && n > end[k] - from[k]))
            return pst_fail(PST_E_PEER,
                            "rank %d sent too few neighbours: give all ranks the parts of one cut", k);
        for (int64_t e = 0; e < n; e++)
            hop->out[hop->indptr[i] + e] = (int64_t)from[k][e];
        from[k] += n;
        hop->indptr[i + 1] = hop->indptr[i] + (int32_t)n;
    }
    return PST_OK;
}

pst_rc draws_hop(struct draws *d, const struct pst_sampling_hop *hop)
{
    struct round now = {.wants = {0}};
    int64_t sum = 0, drawn = 0;
    pst_rc rc = meet(d, hop, &now);
    if (rc != PST_OK)
        return rc;
    const int64_t n = (int64_t)now.wants[d->rank], *mine = (const int64_t *)(const void *)d->own.at;
    const double begin = pst_now();
    rc = count_draws(d, mine, n, hop->fanout, &sum);
    if (rc == PST_OK) /* other ranks have what they asked for */
        rc = need(&d->reply, (uint64_t)sum * sizeof(uint64_t) + 1);
    if (rc == PST_OK)
        rc = draw(d, hop->key, mine, n, hop->fanout, words_of(&d->reply), sum, &drawn);
    d->counts.draw_s += pst_now() - begin;
    return rc == PST_OK ? merge(d, hop, &now, words_of(&d->reply)) : rc;
}

pst_rc draws_join(struct draws *d)
{
    pst_rc rc = PST_OK;
    do {
        struct round now = {.wants = {0}};
        rc = meet(d, NULL, &now);
    } while (rc == PST_OK && !d->all);
    return rc;
}

/* access.c: the order by what pre-sampled batches need. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/reorder/bisect.h"
#include "stages/lib/reorder/renumber_impl.h"

#define HOT 0.5       /* a row that more batches need than this share of them is hot */
#define LEAST 4       /* rows that the bisection leaves together */
#define ENTRY_BYTES 8 /* of a row of a hood: once by hoods, once by rows */

/* Hoods as queries, rows as items. */
struct samples {
    uint32_t *item_of; /* vertices; UINT32_MAX: no item */
    int64_t *vertex;   /* of each item */
    uint32_t items, hoods;
    uint64_t entries, entries_max, *at; /* at: items + 1 */
    uint32_t *entry, *queries;          /* entry: items of each hood; queries: hoods of each item */
    uint64_t *hood_at;
    uint64_t hoods_max;
};

static void release(struct samples *x)
{
    free(x->item_of);
    free(x->vertex);
    free(x->at);
    free(x->entry);
    free(x->queries);
    free(x->hood_at);
}

static pst_rc no_memory(int64_t n)
{
    return pst_fail(PST_E_NOMEM, "out of memory: cannot order the rows of %" PRId64 " vertices", n);
}

/* Rows that are cached or hot are no items: the first so many of `hottest`, which has cached rows first. */
static int64_t count_hot(const struct pst_renumber_spec *s, const int64_t *hottest)
{
    const int64_t n = s->hoods->graph.vertices;
    int64_t hot = 0;
    while (hot < n && s->tier[hottest[hot]] >= PST_RENUMBER_BOTH)
        hot++;
    while (hot < n && s->counts[hottest[hot]] > HOT * (double)s->hoods->seeds.batches)
        hot++;
    return hot;
}

static pst_rc take_hood(struct samples *x, const struct pst_hoods *h)
{
    for (int64_t i = 0; i < h->n[h->spec.hops]; i++) {
        const uint32_t item = x->item_of[h->vertices[i]];
        if (item != UINT32_MAX)
            x->entry[x->entries++] = item;
    }
    if (x->entries > x->hood_at[x->hoods])
        x->hood_at[++x->hoods] = x->entries;
    return PST_OK;
}

/* Draws hoods until there is no room. Seeds come in the shuffled order of the epochs, so that those that are
 * drawn are a fair sample of all. */
static pst_rc draw(struct samples *x, struct pst_hoods *h, struct pst_progress *progress)
{
    int64_t *seeds = malloc((size_t)h->seeds.batch * sizeof *seeds);
    pst_rc rc = seeds != NULL ? PST_OK : no_memory(h->graph.vertices);
    bool room = true;
    pst_progress_begin(progress, "sampling", PST_HOODS_EPOCHS * h->seeds.batches, false);
    pst_hoods_begin(h);
    for (uint64_t b = 0; b < PST_HOODS_EPOCHS * h->seeds.batches && room && rc == PST_OK; b++) {
        int64_t n;
        pst_hoods_seeds(h, b, &n);
        memcpy(seeds, h->batch, (size_t)n * sizeof *seeds);
        for (int64_t i = 0; i < n && room && rc == PST_OK; i++) {
            rc = pst_hoods_one(h, b, seeds[i]);
            room = x->hoods + 1 < x->hoods_max && x->entries + (uint64_t)h->n[h->spec.hops] <= x->entries_max;
            if (rc == PST_OK && room)
                rc = take_hood(x, h);
        }
        if (rc == PST_OK)
            rc = pst_progress_add(progress, 1);
    }
    pst_hoods_end(h);
    if (rc == PST_OK)
        pst_progress_end(progress);
    free(seeds);
    return rc;
}

/* Sorts the entries by items. */
static pst_rc turn(struct samples *x)
{
    x->at = calloc((size_t)x->items + 2, sizeof *x->at);
    x->queries = malloc((size_t)x->entries * sizeof *x->queries + 1);
    if (x->at == NULL || x->queries == NULL)
        return no_memory(x->items);
    for (uint64_t k = 0; k < x->entries; k++)
        x->at[x->entry[k] + 2]++;
    for (uint32_t i = 0; i < x->items; i++)
        x->at[i + 2] += x->at[i + 1];
    for (uint32_t q = 0; q < x->hoods; q++)
        for (uint64_t k = x->hood_at[q]; k < x->hood_at[q + 1]; k++)
            x->queries[x->at[x->entry[k] + 1]++] = q;
    free(x->entry);
    x->entry = NULL;
    return PST_OK;
}

/* Makes items of all vertices that are not hot, in the order that is given. */
static pst_rc number_items(struct samples *x, const struct pst_renumber_spec *s, const int64_t *order,
                           const int64_t *hottest, int64_t hot)
{
    const int64_t n = s->hoods->graph.vertices;
    const uint64_t fixed = (uint64_t)n * 64;
    if (n >= UINT32_MAX)
        return pst_fail(PST_E_LIMIT, "--by access cannot order %" PRId64 " vertices: expected fewer than %u",
                        n, UINT32_MAX);
    if (s->memory_bytes < fixed + (uint64_t)n * 4 * ENTRY_BYTES)
        return pst_fail(PST_E_ARG,
                        "--memory: %" PRIu64 " bytes are too few to order %" PRId64
                        " vertices by access: expected at least %" PRIu64,
                        s->memory_bytes, n, fixed + (uint64_t)n * 4 * ENTRY_BYTES);
    x->entries_max = (s->memory_bytes - fixed) / (ENTRY_BYTES + ENTRY_BYTES / 2);
    x->hoods_max = x->entries_max / 4 < UINT32_MAX - 1 ? x->entries_max / 4 : UINT32_MAX - 1;
    const uint64_t seeds = PST_HOODS_EPOCHS * (uint64_t)s->hoods->seeds.n + 1;
    x->hoods_max = x->hoods_max < seeds ? x->hoods_max : seeds;
    x->item_of = calloc((size_t)n + 1, sizeof *x->item_of);
    x->vertex = malloc((size_t)n * sizeof *x->vertex + 1);
    x->entry = malloc((size_t)x->entries_max * sizeof *x->entry);
    x->hood_at = calloc((size_t)x->hoods_max + 2, sizeof *x->hood_at);
    if (x->item_of == NULL || x->vertex == NULL || x->entry == NULL || x->hood_at == NULL)
        return no_memory(n);
    for (int64_t i = 0; i < hot; i++)
        x->item_of[hottest[i]] = UINT32_MAX;
    for (int64_t i = 0; i < n; i++)
        if (x->item_of[order[i]] != UINT32_MAX) {
            x->item_of[order[i]] = x->items;
            x->vertex[x->items++] = order[i];
        }
    return PST_OK;
}

/* order: hot rows, hottest first; rows of hoods, as the bisection has them; the rest. */
static pst_rc put_in_order(struct samples *x, const int64_t *hottest, int64_t hot, int64_t *order,
                           struct pst_progress *progress)
{
    uint32_t *place = malloc((size_t)x->items * sizeof *place + 1), n = 0;
    int64_t to = hot;
    if (place == NULL)
        return no_memory(x->items);
    for (uint32_t i = 0; i < x->items; i++)
        if (x->at[i + 1] > x->at[i])
            place[n++] = i;
    const struct pst_bisect_spec spec = {
        .items = x->items, .nqueries = x->hoods, .at = x->at, .queries = x->queries, .least = LEAST};
    const pst_rc rc = pst_bisect(&spec, place, n, progress);
    memcpy(order, hottest, (size_t)hot * sizeof *order);
    for (uint32_t i = 0; i < n; i++)
        order[to++] = x->vertex[place[i]];
    for (uint32_t i = 0; i < x->items; i++)
        if (x->at[i + 1] == x->at[i])
            order[to++] = x->vertex[i];
    free(place);
    return rc;
}

pst_rc pst_renumber_by_access(const struct pst_renumber_spec *s, int64_t *order,
                              struct pst_progress *progress)
{
    const int64_t n = s->hoods->graph.vertices;
    struct samples x = {.items = 0};
    int64_t *hottest = malloc((size_t)n * sizeof *hottest + 1);
    if (hottest == NULL)
        return no_memory(n);
    pst_rc rc = pst_renumber_hottest(s->counts, s->tier, PST_RENUMBER_BOTH, n, hottest);
    const int64_t hot = rc == PST_OK ? count_hot(s, hottest) : 0;
    if (rc == PST_OK)
        rc = number_items(&x, s, order, hottest, hot);
    if (rc == PST_OK)
        rc = draw(&x, s->hoods, progress);
    if (rc == PST_OK)
        rc = turn(&x);
    if (rc == PST_OK)
        rc = put_in_order(&x, hottest, hot, order, progress);
    release(&x);
    free(hottest);
    return rc;
}

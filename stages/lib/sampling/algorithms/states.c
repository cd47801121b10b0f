/* states.c: the states of a buffer of partitions, and the batches of each. */
#include "stages/lib/sampling/algorithms/states.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/rng.h"
#include "stages/lib/order/orders.h"
#include "stages/lib/parts/parts.h"

_Static_assert(PST_ORDER_PARTITIONS_MAX <= 64 * PST_K_PARTITION_WORDS, "each partition has a bit");
_Static_assert(PST_ORDER_PARTITIONS_MAX <= UINT8_MAX + 1, "partitions have numbers of 8 bits");

/* ---- partitions of vertices ----------------------------------------------------------------------- */

static pst_rc no_memory(const struct pst_sampling_states_ask *ask)
{
    return pst_fail(PST_E_NOMEM, "out of memory: cannot keep the partitions of %lld vertices",
                    (long long)ask->vertices);
}

/* The seeds fill the first partitions, in the order of the permutation, like the other vertices behind them.
 */
static pst_rc assign_training(struct pst_sampling_states *s, const struct pst_sampling_states_ask *ask,
                              const struct pst_parts *parts)
{
    uint64_t *is_seed = calloc((size_t)ask->vertices / 64 + 1, sizeof *is_seed);
    int64_t at[2] = {ask->nseeds, 0}; /* the next place of another vertex, and of a seed */
    if (is_seed == NULL)
        return no_memory(ask);
    for (int64_t i = 0; i < ask->nseeds; i++)
        is_seed[ask->seeds[i] / 64] |= UINT64_C(1) << ask->seeds[i] % 64;
    for (int64_t place = 0; place < ask->vertices; place++) {
        const int64_t v = pst_parts_vertex(parts, place);
        s->partition[v] = (uint8_t)(at[is_seed[v / 64] >> v % 64 & 1]++ / s->rows);
    }
    free(is_seed);
    return PST_OK;
}

static pst_rc assign(struct pst_sampling_states *s, const struct pst_sampling_states_ask *ask)
{
    struct pst_parts parts;
    const enum pst_parts_assign how =
        ask->assign == PST_SAMPLING_STATES_BY_ID ? PST_PARTS_BY_ID : PST_PARTS_RANDOM;
    pst_rc rc = pst_parts_init(&parts, ask->vertices, s->partitions, how, ask->seed);
    if (rc != PST_OK)
        return rc;
    s->rows = parts.rows;
    s->partition = malloc((size_t)ask->vertices);
    s->seeds = calloc((size_t)s->partitions, sizeof *s->seeds);
    if (s->partition == NULL || s->seeds == NULL)
        return no_memory(ask);
    if (ask->order == PST_SAMPLING_STATES_TRAINING)
        rc = assign_training(s, ask, &parts);
    for (int64_t v = 0; ask->order != PST_SAMPLING_STATES_TRAINING && v < ask->vertices; v++)
        s->partition[v] = (uint8_t)pst_parts_of(&parts, v);
    for (int64_t i = 0; i < ask->nseeds && rc == PST_OK; i++)
        s->seeds[s->partition[ask->seeds[i]]]++;
    return rc;
}

/* ---- states ----------------------------------------------------------------------------------------- */

/* One state: the first `buffer` partitions, of which those with seeds stay. */
static pst_rc find_training(struct pst_sampling_states *s, const struct pst_sampling_states_ask *ask)
{
    s->fixed = (int)((ask->nseeds + s->rows - 1) / s->rows);
    if (s->fixed > s->buffer)
        return pst_fail(PST_E_ARG,
                        "the order training keeps the partitions of all seeds in the buffer, but the %lld "
                        "seeds fill %d partitions and the buffer holds %d: set buffer to %d or more, use "
                        "fewer partitions, or set order to beta",
                        (long long)ask->nseeds, s->fixed, s->buffer, s->fixed);
    s->n = 1;
    s->loads = s->buffer;
    s->state = malloc((size_t)s->buffer * sizeof *s->state);
    for (int i = 0; s->state != NULL && i < s->buffer; i++)
        s->state[i] = (uint16_t)i;
    return s->state != NULL ? PST_OK : no_memory(ask);
}

static pst_rc find_states(struct pst_sampling_states *s, const struct pst_sampling_states_ask *ask)
{
    static const enum pst_order_kind kinds[] = {
        PST_ORDER_BETA, PST_ORDER_HILBERT, PST_ORDER_HILBERT_SYMMETRIC, PST_ORDER_LEGEND, PST_ORDER_AUTO};
    struct pst_order order;
    struct pst_order_counts counts;
    if (ask->order == PST_SAMPLING_STATES_TRAINING)
        return find_training(s, ask);
    pst_rc rc =
        pst_order_build(&order, kinds[ask->order - PST_SAMPLING_STATES_ORDERED], s->partitions, s->buffer);
    if (rc != PST_OK)
        return rc;
    const size_t places = (size_t)(order.exchanges + 1) * (size_t)s->buffer;
    pst_order_count(&order, &counts);
    s->n = order.exchanges + 1;
    s->loads = counts.loads;
    s->state = malloc(places * sizeof *s->state);
    if (s->state != NULL)
        memcpy(s->state, order.state, places * sizeof *s->state);
    pst_order_release(&order);
    return s->state != NULL ? PST_OK : no_memory(ask);
}

/* States share no batches, so some batches are not full. */
static pst_rc count_batches(struct pst_sampling_states *s, const struct pst_sampling_states_ask *ask)
{
    s->batch = ask->batch;
    s->batches = (uint64_t)((ask->nseeds + s->n * (ask->batch - 1)) / ask->batch);
    return s->batches <= (uint64_t)ask->nseeds
               ? PST_OK
               : pst_fail(PST_E_ARG,
                          "%lld seeds are too few for the %lld states of the buffer in an epoch, which would "
                          "take %llu batches: use fewer partitions, a larger buffer, or the order training",
                          (long long)ask->nseeds, (long long)s->n, (unsigned long long)s->batches);
}

static void list_visits(struct pst_sampling_states *s)
{
    for (int64_t i = 0; i < s->n * s->buffer; i++)
        s->first_visit[s->state[i] + 1]++;
    for (int p = 0; p < s->partitions; p++)
        s->first_visit[p + 1] += s->first_visit[p];
    for (int64_t i = 0; i < s->n * s->buffer; i++) {
        const uint16_t called = s->state[i];
        s->visit[s->first_visit[called] + s->seen[called]++] = i / s->buffer;
    }
}

static int64_t visits_of(const struct pst_sampling_states *s, int called)
{
    return s->first_visit[called + 1] - s->first_visit[called];
}

pst_rc pst_sampling_states_open(struct pst_sampling_states *s, const struct pst_sampling_states_ask *ask)
{
    *s = (struct pst_sampling_states){
        .partitions = (int)ask->partitions, .buffer = (int)ask->buffer, .seed = ask->seed, .epoch = -1};
    if (ask->buffer > ask->partitions || ask->partitions > ask->vertices)
        return pst_fail(PST_E_ARG,
                        "partitions is %lld and buffer is %lld; expected at most as many partitions as the "
                        "graph has vertices (%lld), and at most as many in the buffer",
                        (long long)ask->partitions, (long long)ask->buffer, (long long)ask->vertices);
    pst_rc rc = assign(s, ask);
    if (rc == PST_OK)
        rc = find_states(s, ask);
    if (rc == PST_OK)
        rc = count_batches(s, ask);
    if (rc != PST_OK)
        return rc;
    const size_t partitions = (size_t)s->partitions, places = (size_t)(s->n * s->buffer);
    s->first_visit = calloc(partitions + 1, sizeof *s->first_visit);
    s->visit = calloc(places, sizeof *s->visit);
    s->seen = calloc(partitions, sizeof *s->seen);
    s->next = calloc((size_t)s->n, sizeof *s->next);
    s->sorted = malloc((size_t)ask->nseeds * sizeof *s->sorted);
    s->number = calloc(partitions, sizeof *s->number);
    s->first_seed = calloc((size_t)s->n + 1, sizeof *s->first_seed);
    s->first = calloc((size_t)s->n + 1, sizeof *s->first);
    if (s->first_visit == NULL || s->visit == NULL || s->seen == NULL || s->next == NULL ||
        s->sorted == NULL || s->number == NULL || s->first_seed == NULL || s->first == NULL)
        return no_memory(ask);
    list_visits(s);
    return PST_OK;
}

void pst_sampling_states_close(struct pst_sampling_states *s)
{
    free(s->partition);
    free(s->state);
    free(s->seeds);
    free(s->first_visit);
    free(s->visit);
    free(s->seen);
    free(s->next);
    free(s->sorted);
    free(s->number);
    free(s->first_seed);
    free(s->first);
    *s = (struct pst_sampling_states){.epoch = -1};
}

/* ---- epochs ----------------------------------------------------------------------------------------- */

/* A seeded permutation of the numbers that are not fixed (Fisher and Yates, from the inside out). */
static void renumber(struct pst_sampling_states *s, int64_t epoch)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_PARTITION, s->seed, (uint32_t)epoch, 0, 4);
    for (int i = 0; i < s->partitions; i++) {
        s->number[i] = (uint16_t)i;
        if (i < s->fixed)
            continue;
        const struct pst_rng_block draw = pst_rng_draw(&stream, (uint64_t)i, 0);
        const int j = s->fixed + (int)pst_rng_bounded(pst_rng_u64(&draw, 0), (uint64_t)(i - s->fixed) + 1);
        s->number[i] = s->number[j];
        s->number[j] = (uint16_t)i;
    }
}

/* How many seeds each state gets: of a partition's seeds, state k of those that have it gets the k-th, and
 * every visits-th from there. */
static void share_seeds(struct pst_sampling_states *s)
{
    memset(s->seen, 0, (size_t)s->partitions * sizeof *s->seen);
    for (int64_t k = 0; k < s->n; k++) {
        int64_t n = 0;
        for (int i = 0; i < s->buffer; i++) {
            const uint16_t called = s->state[k * s->buffer + i];
            const int64_t all = s->seeds[s->number[called]], visits = visits_of(s, called);
            n += all / visits + (s->seen[called]++ < all % visits);
        }
        s->first_seed[k + 1] = s->first_seed[k] + n;
    }
}

/* No batch is empty: a state never has more batches than seeds. */
static void share_batches(struct pst_sampling_states *s)
{
    int64_t left = (int64_t)s->batches, *batches = s->first + 1;
    for (int64_t k = 0; k < s->n; k++) {
        batches[k] = (s->first_seed[k + 1] - s->first_seed[k] + s->batch - 1) / s->batch;
        left -= batches[k];
    }
    while (left > 0) {
        for (int64_t k = 0; k < s->n && left > 0; k++) {
            const bool more = batches[k] < s->first_seed[k + 1] - s->first_seed[k];
            batches[k] += more;
            left -= more;
        }
    }
    for (int64_t k = 0; k < s->n; k++)
        s->first[k + 1] += s->first[k];
}

void pst_sampling_states_go(struct pst_sampling_states *s, int64_t epoch)
{
    if (s->epoch == epoch)
        return;
    renumber(s, epoch);
    share_seeds(s);
    share_batches(s);
    s->epoch = epoch;
}

int64_t pst_sampling_states_of(const struct pst_sampling_states *s, int64_t batch)
{
    int64_t low = 0, high = s->n - 1; /* the last state that begins at or before the batch */
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        low = s->first[middle] <= batch ? middle : low;
        high = s->first[middle] <= batch ? high : middle - 1;
    }
    return low;
}

int64_t pst_sampling_states_begin(const struct pst_sampling_states *s, int64_t batch)
{
    if (batch >= (int64_t)s->batches)
        return s->first_seed[s->n];
    const int64_t k = pst_sampling_states_of(s, batch), seeds = s->first_seed[k + 1] - s->first_seed[k];
    return s->first_seed[k] + seeds * (batch - s->first[k]) / (s->first[k + 1] - s->first[k]);
}

void pst_sampling_states_resident(const struct pst_sampling_states *s, int64_t state,
                                  uint64_t resident[PST_K_PARTITION_WORDS])
{
    memset(resident, 0, PST_K_PARTITION_WORDS * sizeof *resident);
    for (int i = 0; i < s->buffer; i++) {
        const uint16_t p = s->number[s->state[state * s->buffer + i]];
        resident[p / 64] |= UINT64_C(1) << p % 64;
    }
}

void pst_sampling_states_sort(struct pst_sampling_states *s, const int64_t *ids, int64_t *order, int64_t n)
{
    uint16_t called[PST_ORDER_PARTITIONS_MAX]; /* the order's number of each partition */
    for (int p = 0; p < s->partitions; p++)
        called[s->number[p]] = (uint16_t)p;
    memset(s->seen, 0, (size_t)s->partitions * sizeof *s->seen);
    memcpy(s->next, s->first_seed, (size_t)s->n * sizeof *s->next);
    for (int64_t i = 0; i < n; i++) {
        const uint16_t p = called[s->partition[ids[order[i]]]];
        const int64_t k = s->visit[s->first_visit[p] + s->seen[p]++ % visits_of(s, p)];
        s->sorted[s->next[k]++] = order[i];
    }
    memcpy(order, s->sorted, (size_t)n * sizeof *order);
}

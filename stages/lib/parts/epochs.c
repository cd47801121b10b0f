/* epochs.c: where each batch of each epoch lies. */
#include "stages/lib/parts/epochs.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/util/rng.h"

/* A seeded permutation (Fisher and Yates, from the inside out). */
static void renumber(struct pst_parts_epochs *e, int64_t epoch)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_PARTITION, e->seed, (uint32_t)epoch, 0, 1);
    const uint64_t n = (uint64_t)e->order->partitions;
    for (uint64_t i = 0; i < n; i++) { /* each goes to a random place among the first i + 1 */
        const struct pst_rng_block draw = pst_rng_draw(&stream, i, 0);
        const uint64_t j = pst_rng_bounded(pst_rng_u64(&draw, 0), i + 1);
        e->number[i] = e->number[j];
        e->number[j] = (uint16_t)i;
    }
}

static int64_t edges_of(const struct pst_parts_epochs *e, int64_t group)
{
    int64_t n = 0;
    for (int64_t i = e->order->cut[group]; i < e->order->cut[group + 1]; i++) {
        const struct pst_order_bucket *b = &e->order->bucket[i];
        n +=
            e->bucket_edges[(int64_t)e->number[b->source] * e->order->partitions + e->number[b->destination]];
    }
    return n;
}

static uint64_t full(const struct pst_parts_epochs *e, int64_t group)
{
    return (uint64_t)((e->group_edges[group] + e->batch - 1) / e->batch);
}

static bool commits_after(const struct pst_parts_epochs *e, int64_t group)
{
    return group % 2 == 0 && pst_parts_epochs_commits(e, group / 2);
}

/* Does a commit come between the last batches of a partition that exchange `out` takes out, and exchange i?
 * Then everything is home. */
static bool commits_between(const struct pst_parts_epochs *e, int64_t out, int64_t i)
{
    bool any = false;
    for (int64_t k = out - 1; k < i && !any; k++)
        any = pst_parts_epochs_commits(e, k);
    return any;
}

/* Batches without edges after a group. All batches up to its own begin are listed. */
static uint64_t pauses(const struct pst_parts_epochs *e, int64_t group)
{
    const uint64_t wanted = (uint64_t)e->staleness - 1;
    const int64_t i = (group + 1) / 2; /* the exchange that a group with an odd number accompanies */
    const int64_t out = group % 2 == 1 ? e->taken_out[i] : 0;
    if (commits_after(e, group))
        return (uint64_t)e->staleness;
    if (out == 0 || commits_between(e, out, i))
        return 0;
    const uint64_t since = e->group_batch[group] + full(e, group) - e->group_batch[2 * out - 1];
    return since < wanted ? wanted - since : 0;
}

/* Batches of the epoch that was chosen. */
static uint64_t batches_of(const struct pst_parts_epochs *e)
{
    return e->group_batch[e->groups] + (uint64_t)e->staleness;
}

void pst_parts_epochs_go(struct pst_parts_epochs *e, int64_t epoch)
{
    if (e->epoch == epoch)
        return;
    e->epoch = epoch;
    renumber(e, epoch);
    e->group_batch[0] = 0;
    for (int64_t g = 0; g < e->groups; g++) {
        e->group_edges[g] = edges_of(e, g);
        e->group_batch[g + 1] = e->group_batch[g] + full(e, g) + pauses(e, g);
        e->largest_group = pst_max_i64(e->largest_group, e->group_edges[g]);
    }
}

static void find_taken_out(struct pst_parts_epochs *e)
{
    const struct pst_order *o = e->order;
    int64_t out[PST_ORDER_PARTITIONS_MAX] = {0}; /* of a partition: the last exchange that took it out */
    for (int64_t i = 1; i <= o->exchanges; i++) {
        const uint16_t *before = o->state + (i - 1) * o->buffer, *after = before + o->buffer;
        for (int place = 0; place < o->buffer; place++)
            if (before[place] != after[place])
                e->taken_out[i] = pst_max_i64(e->taken_out[i], out[after[place]]);
        for (int place = 0; place < o->buffer; place++)
            if (before[place] != after[place])
                out[before[place]] = i;
    }
}

pst_rc pst_parts_epochs_open(struct pst_parts_epochs *e)
{
    e->groups = 2 * e->order->exchanges + 1;
    e->epoch = -1;
    e->taken_out = calloc((size_t)e->order->exchanges + 1, sizeof *e->taken_out);
    e->first_batch = calloc((size_t)e->epochs + 1, sizeof *e->first_batch);
    e->group_edges = calloc((size_t)e->groups, sizeof *e->group_edges);
    e->group_batch = calloc((size_t)e->groups + 1, sizeof *e->group_batch);
    if (!e->taken_out || !e->first_batch || !e->group_edges || !e->group_batch)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot list the batches of %lld epochs",
                        (long long)e->epochs);
    find_taken_out(e);
    for (int64_t i = 0; i < e->epochs; i++) {
        pst_parts_epochs_go(e, i);
        if (__builtin_add_overflow(e->first_batch[i], batches_of(e), &e->first_batch[i + 1]))
            return pst_fail(PST_E_LIMIT,
                            "the %lld epochs have more batches than 64 bits can count: use fewer epochs or "
                            "larger batches",
                            (long long)e->epochs);
    }
    return PST_OK;
}

uint64_t pst_parts_epochs_total(const struct pst_parts_epochs *e)
{
    return e->first_batch[e->epochs];
}

void pst_parts_epochs_close(struct pst_parts_epochs *e)
{
    free(e->taken_out);
    free(e->first_batch);
    free(e->group_edges);
    free(e->group_batch);
    *e = (struct pst_parts_epochs){.order = NULL};
}

/* The last index in [0, n) whose value is at most `value`. values[0] is. */
static int64_t last_at_most(const uint64_t *values, int64_t n, uint64_t value)
{
    int64_t low = 0, high = n;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (values[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void pst_parts_epochs_find(struct pst_parts_epochs *e, uint64_t batch, struct pst_parts_batch *out)
{
    pst_parts_epochs_go(e, last_at_most(e->first_batch, e->epochs, batch));
    *out = (struct pst_parts_batch){
        .epoch = e->epoch, .at = batch - e->first_batch[e->epoch], .batches = batches_of(e)};
    out->group = last_at_most(e->group_batch, e->groups, out->at);
    const uint64_t end = e->group_batch[e->groups], in_group = out->at - e->group_batch[out->group];
    if (out->at >= end) {
        out->flush = (uint32_t)(out->at - end + 1);
    } else if (in_group < full(e, out->group)) {
        out->first = (int64_t)in_group * e->batch;
        out->edges = (uint32_t)pst_min_i64(e->batch, e->group_edges[out->group] - out->first);
    } else {
        out->commit = commits_after(e, out->group) && in_group == full(e, out->group);
    }
}

int64_t pst_parts_epochs_begin(const struct pst_parts_epochs *e, uint64_t at)
{
    for (int64_t i = e->commit_swaps; i > 0 && i < e->order->exchanges; i += e->commit_swaps)
        if (e->group_batch[2 * i + 1] == at)
            return i;
    return 0;
}

int pst_parts_epochs_resident(const struct pst_parts_epochs *e, int64_t group,
                              int partitions[PST_ORDER_PARTITIONS_MAX])
{
    const struct pst_order *o = e->order;
    const int64_t before = group / 2, after = (group + 1) / 2; /* states; different during an exchange */
    int n = 0;
    for (int place = 0; place < o->buffer; place++) {
        const uint16_t id = o->state[before * o->buffer + place];
        if (id == o->state[after * o->buffer + place])
            partitions[n++] = e->number[id];
    }
    return n;
}

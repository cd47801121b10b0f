/* shares.c: divides training vertices among devices, and shuffles and cuts them into batches. */
#include "stages/lib/legion/shares.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "kernels/kernels.h"
#include "stages/lib/sampling/seeds.h"

int pst_legion_shares_device(const struct pst_legion_shares_config *c, int64_t v)
{
    return pst_seeds_device(c->devices_of_part[c->part[v]], c->seed, v);
}

static void sort_by_device(struct pst_legion_shares *s, const struct pst_legion_shares_config *c)
{
    int64_t next[PST_CLIQUES_MAX] = {0};
    for (int64_t i = 0; i < c->ntrain; i++)
        next[pst_legion_shares_device(c, c->train[i])]++;
    for (int d = 0; d < s->devices; d++) {
        s->begin[d + 1] = s->begin[d] + next[d];
        next[d] = s->begin[d];
    }
    for (int64_t i = 0; i < c->ntrain; i++) {
        const int64_t v = c->train[i];
        s->ids[next[pst_legion_shares_device(c, v)]++] = v;
    }
}

/* Batches of the run become grains, `own` of them for each batch of a device. */
static void cut_grains(struct pst_legion_shares *s, int64_t own)
{
    if (s->grains == 0)
        return;
    const int64_t of_a_batch = s->global ? s->grains : own;
    s->run_batches = s->steps;
    s->run_batch = s->batch_max;
    s->steps *= own;
    s->batch_max = (s->batch_max + of_a_batch - 1) / of_a_batch;
}

static pst_rc divide_locally(struct pst_legion_shares *s, const struct pst_legion_shares_config *c)
{
    int64_t largest = 0;
    sort_by_device(s, c);
    for (int d = 0; d < s->devices; d++) {
        const int64_t n = s->begin[d + 1] - s->begin[d];
        if (n == 0)
            return pst_fail(
                PST_E_ARG,
                "device %d has no training vertex: %lld are divided among %d devices, and the part of the "
                "graph of this device contains none; use fewer devices or more training vertices",
                d, (long long)c->ntrain, s->devices);
        largest = pst_max_i64(largest, n);
    }
    s->steps = c->batch > 0 ? (largest + c->batch - 1) / c->batch : c->batches;
    s->batch_max = (largest + s->steps - 1) / s->steps;
    cut_grains(s, s->grains / s->devices);
    return PST_OK;
}

static pst_rc divide_globally(struct pst_legion_shares *s, const struct pst_legion_shares_config *c)
{
    const int64_t share = (s->n + s->devices - 1) / s->devices;
    memcpy(s->ids, c->train, (size_t)s->n * sizeof *s->ids);
    if (s->grains > 0) {
        s->batch_max = pst_min_i64(c->batch, s->n);
        s->steps = (s->n + s->batch_max - 1) / s->batch_max;
        cut_grains(s, s->grains / s->devices);
        return PST_OK;
    }
    s->steps = c->batch > 0 ? (share + c->batch - 1) / c->batch : c->batches;
    const int64_t batches = s->steps * s->devices;
    if (s->n < batches)
        return pst_fail(
            PST_E_ARG,
            "%lld training vertices are fewer than the %lld batches of an epoch (%d devices); use "
            "fewer devices, fewer batches or more training vertices",
            (long long)s->n, (long long)batches, s->devices);
    s->batch_max = (s->n + batches - 1) / batches;
    return PST_OK;
}

pst_rc pst_legion_shares_init(struct pst_legion_shares *s, const struct pst_legion_shares_config *c)
{
    assert(c->devices >= 1 && c->devices <= PST_CLIQUES_MAX && (c->batch > 0) != (c->batches > 0));
    assert(c->grains % c->devices == 0 && (c->grains == 0 || c->batch > 0));
    *s = (struct pst_legion_shares){.global = c->part == NULL,
                                    .devices = c->devices,
                                    .n = c->ntrain,
                                    .grains = c->grains,
                                    .in_order = c->in_order,
                                    .seed = c->seed,
                                    .order_epoch = -1};
    s->ids = malloc((size_t)s->n * sizeof *s->ids + 1);
    s->order = malloc((size_t)s->n * sizeof *s->order + 1);
    pst_rc rc =
        s->ids != NULL && s->order != NULL
            ? PST_OK
            : pst_fail(PST_E_NOMEM, "out of memory: cannot divide %lld training vertices", (long long)s->n);
    if (rc == PST_OK)
        rc = s->global ? divide_globally(s, c) : divide_locally(s, c);
    if (rc != PST_OK)
        pst_legion_shares_release(s);
    return rc;
}

void pst_legion_shares_release(struct pst_legion_shares *s)
{
    free(s->ids);
    free(s->order);
    s->ids = s->order = NULL;
}

/* Each device that shuffles its own share has its own permutations. */
static void shuffle(struct pst_legion_shares *s, int device, int64_t epoch, int64_t n)
{
    if (s->order_epoch == epoch && s->order_device == device)
        return;
    const uint64_t seed = s->global ? s->seed : pst_seeds_own_order(s->seed, device);
    for (int64_t i = 0; s->in_order && i < n; i++)
        s->order[i] = i;
    if (!s->in_order)
        pst_k_shuffle(NULL, seed, (uint64_t)epoch, s->order, n);
    s->order_epoch = epoch;
    s->order_device = device;
}

uint64_t pst_legion_shares_key(const struct pst_legion_shares *s, int device, int64_t step)
{
    return (uint64_t)(s->grains > 0 ? step / (s->grains / s->devices) : step * s->devices + device);
}

/* Where a batch of a run begins in the order of n seeds (seeds.h). */
static int64_t run_begin(const struct pst_legion_shares *s, int64_t n, int64_t number)
{
    return s->global ? pst_min_i64(n, number * s->run_batch) : n * number / s->run_batches;
}

/* The place of a grain in the order of n seeds. */
static void find_grain(const struct pst_legion_shares *s, int device, int64_t n, int64_t step, int64_t *from,
                       int64_t *to)
{
    const int64_t own = s->grains / s->devices, number = step / own;
    const int64_t grains = s->global ? s->grains : own, grain = step % own + (s->global ? device * own : 0);
    const int64_t begin = run_begin(s, n, number), seeds = run_begin(s, n, number + 1) - begin;
    *from = begin + grain * seeds / grains;
    *to = begin + (grain + 1) * seeds / grains;
}

int64_t pst_legion_shares_batch(struct pst_legion_shares *s, int device, int64_t epoch, int64_t step,
                                int64_t *out)
{
    const int64_t first = s->global ? 0 : s->begin[device];
    const int64_t n = s->global ? s->n : s->begin[device + 1] - first;
    const int64_t pieces = s->global ? s->steps * s->devices : s->steps;
    const int64_t piece = s->global ? step * s->devices + device : step;
    int64_t from = n * piece / pieces, to = n * (piece + 1) / pieces;
    if (s->grains > 0)
        find_grain(s, device, n, step, &from, &to);
    shuffle(s, s->global ? 0 : device, epoch, n);
    for (int64_t i = from; i < to; i++)
        out[i - from] = s->ids[first + s->order[i]];
    return to - from;
}

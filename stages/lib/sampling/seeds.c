/* seeds.c: the seeds of each batch. */
#include "stages/lib/sampling/seeds.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/store.h"
#include "common/util/rng.h"
#include "kernels/kernels.h"
#include "stages/lib/sampling/algorithms/states.h"

static int split_index(const char *split)
{
    return strcmp(split, "train") == 0 ? PST_TRAIN : strcmp(split, "val") == 0 ? PST_VAL : PST_TEST;
}

/* Copies the split without repeats, because a vertex is a seed once an epoch. */
static pst_rc copy_split(struct pst_seeds *s, const int64_t *ids, int64_t n, int64_t vertices,
                         const char *path)
{
    uint64_t *seen = calloc((size_t)vertices / 64 + 1, sizeof *seen);
    s->ids = malloc((size_t)n * sizeof *s->ids);
    s->order = malloc((size_t)n * sizeof *s->order);
    if (seen == NULL || s->ids == NULL || s->order == NULL) {
        free(seen);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the order of %lld seeds", (long long)n);
    }
    pst_rc rc = PST_OK;
    for (int64_t i = 0; i < n && rc == PST_OK; i++) {
        int64_t id = ids[i];
        if (id < 0 || id >= vertices) {
            rc = pst_fail(PST_E_FORMAT, "%s: entry %lld is vertex %lld, but the graph has only %lld vertices",
                          path, (long long)i, (long long)id, (long long)vertices);
            break;
        }
        uint64_t bit = (uint64_t)1 << (id % 64);
        if (seen[id / 64] & bit)
            s->repeats++;
        else
            s->ids[s->n++] = id;
        seen[id / 64] |= bit;
    }
    free(seen);
    return rc;
}

pst_rc pst_seeds_init(struct pst_seeds *s, const struct pst_dataset *ds, const char *split, int64_t batch,
                      uint64_t seed, bool shuffle)
{
    *s = (struct pst_seeds){.seed = seed, .shuffle = shuffle, .epoch = -1};
    const struct pst_array *array = &ds->split[split_index(split)];
    if (array->map == NULL || array->shape[0] < 1)
        return pst_fail(PST_E_ARG,
                        "the dataset %s has no vertices in its %s split, so there are no seeds (`penstock "
                        "split` makes splits)",
                        ds->dir, split);
    pst_rc rc = copy_split(s, array->map, array->shape[0], ds->vertices, array->path);
    if (rc != PST_OK) {
        pst_seeds_release(s);
        return rc;
    }
    s->batch = pst_min_i64(batch, s->n);
    s->batches = (uint64_t)((s->n + s->batch - 1) / s->batch);
    return PST_OK;
}

pst_rc pst_seeds_init_edges(struct pst_seeds *s, int64_t n, int64_t batch, uint64_t seed, bool shuffle)
{
    *s = (struct pst_seeds){.seed = seed, .shuffle = shuffle, .epoch = -1, .n = n};
    s->ids = malloc((size_t)n * sizeof *s->ids);
    s->order = malloc((size_t)n * sizeof *s->order);
    if (s->ids == NULL || s->order == NULL) {
        pst_seeds_release(s);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the order of %lld edges", (long long)n);
    }
    for (int64_t i = 0; i < n; i++)
        s->ids[i] = i;
    s->batch = pst_min_i64(batch, n);
    s->batches = (uint64_t)((n + s->batch - 1) / s->batch);
    return PST_OK;
}

void pst_seeds_release(struct pst_seeds *s)
{
    free(s->ids);
    free(s->order);
    s->ids = s->order = NULL;
}

void pst_seeds_by_states(struct pst_seeds *s, struct pst_sampling_states *states)
{
    assert(s->replicas == 0 && states->batch == s->batch);
    s->states = states;
    s->batches = states->batches;
    s->epoch = -1;
}

static void order_epoch(struct pst_seeds *s, int64_t epoch)
{
    if (s->states != NULL)
        pst_sampling_states_go(s->states, epoch);
    if (s->epoch == epoch)
        return;
    if (s->shuffle) {
        pst_k_shuffle(NULL, s->seed, (uint64_t)epoch, s->order, s->n);
    } else {
        for (int64_t i = 0; i < s->n; i++)
            s->order[i] = i;
    }
    if (s->states != NULL)
        pst_sampling_states_sort(s->states, s->ids, s->order, s->n);
    s->epoch = epoch;
}

/* Where batch `number` of an epoch begins in the order of `n` seeds. If there are states, they must be at
 * this epoch. */
static int64_t begin_of(const struct pst_seeds *s, int64_t n, int64_t number)
{
    if (s->states != NULL)
        return pst_sampling_states_begin(s->states, number);
    return s->replicas > 0 ? n * number / (int64_t)s->batches : pst_min_i64(n, number * s->batch);
}

int64_t pst_seeds_of(struct pst_seeds *s, uint64_t batch, int64_t *out)
{
    const int64_t number = (int64_t)(batch % s->batches);
    order_epoch(s, (int64_t)(batch / s->batches));
    const int64_t begin = begin_of(s, s->n, number), end = begin_of(s, s->n, number + 1);
    for (int64_t i = begin; i < end; i++)
        out[i - begin] = s->ids[s->order[i]];
    return end - begin;
}

int64_t pst_seeds_of_all(const struct pst_seeds *s, uint64_t batch)
{
    const int64_t number = (int64_t)(batch % s->batches);
    if (s->states != NULL)
        pst_sampling_states_go(s->states, (int64_t)(batch / s->batches));
    int64_t n = s->replicas > 0 ? 0 : begin_of(s, s->n, number + 1) - begin_of(s, s->n, number);
    for (int r = 0; r < s->replicas; r++)
        n += begin_of(s, s->share[r], number + 1) - begin_of(s, s->share[r], number);
    return n;
}

/* ---- shares of replicas --------------------------------------------------------------------------- */

int pst_seeds_device(uint64_t devices, uint64_t seed, int64_t vertex)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_PARTITION, seed, 0, 0, 3);
    const struct pst_rng_block draw = pst_rng_draw(&stream, (uint64_t)vertex, 0);
    for (uint64_t skip = pst_rng_bounded(pst_rng_u64(&draw, 0), (uint64_t)__builtin_popcountll(devices));
         skip > 0; skip--)
        devices &= devices - 1;
    return __builtin_ctzll(devices);
}

int pst_seeds_replica(const struct pst_dataset_cut *cut, int replicas, uint64_t seed, int64_t vertex)
{
    const int ranks = cut->parts > 0 ? cut->parts : 1, near = replicas / ranks;
    int part = 0;
    assert(replicas % ranks == 0);
    while (cut->parts > 0 && vertex >= cut->first[part + 1])
        part++;
    return pst_seeds_device(((UINT64_C(1) << near) - 1) << (part * near), seed, vertex);
}

uint64_t pst_seeds_own_order(uint64_t seed, int device)
{
    const struct pst_rng_stream own = pst_rng_stream_of(PST_RNG_SHUFFLE, seed, 0, (uint64_t)device, 1);
    return (uint64_t)own.key[0] << 32 | own.key[1];
}

pst_rc pst_seeds_divide(struct pst_seeds *s, int replica, int replicas, const int8_t *owner,
                        const struct pst_dataset_cut *cut)
{
    const int64_t all = s->n;
    int64_t largest = 0;
    assert(s->replicas == 0 && replica >= 0 && replica < replicas && replicas <= PST_REPLICAS_MAX);
    s->n = 0;
    for (int64_t i = 0; i < all; i++) {
        const int r = owner != NULL ? owner[s->ids[i]] : pst_seeds_replica(cut, replicas, s->seed, s->ids[i]);
        if (r < 0 || r >= replicas)
            return pst_fail(PST_E_ARG, "the plan gives training vertex %lld to no replica: make a new plan",
                            (long long)s->ids[i]);
        s->share[r]++;
        if (r == replica)
            s->ids[s->n++] = s->ids[i];
    }
    for (int r = 0; r < replicas; r++) {
        if (s->share[r] == 0)
            return pst_fail(
                PST_E_ARG,
                "with the shuffle \"local\", replica %d gets none of the %lld seeds: expected at "
                "least one for each of %d replicas; use fewer replicas, another seed of the run%s, "
                "or the shuffle \"global\"",
                r, (long long)all, replicas, cut->parts > 0 ? ", another cut of the dataset" : "");
        largest = pst_max_i64(largest, s->share[r]);
    }
    s->replicas = replicas;
    s->batches = (uint64_t)((largest + s->batch - 1) / s->batch);
    s->seed = pst_seeds_own_order(s->seed, replica);
    return PST_OK;
}

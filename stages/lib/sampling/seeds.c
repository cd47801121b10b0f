/* seeds.c: the seeds of each batch. */
#include "stages/lib/sampling/seeds.h"

#include <stdlib.h>
#include <string.h>

#include "common/store/store.h"
#include "kernels/kernels.h"
#include "common/error.h"

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

void pst_seeds_release(struct pst_seeds *s)
{
    free(s->ids);
    free(s->order);
    s->ids = s->order = NULL;
}

static void order_epoch(struct pst_seeds *s, int64_t epoch)
{
    if (s->epoch == epoch)
        return;
    if (s->shuffle) {
        pst_k_shuffle(NULL, s->seed, (uint64_t)epoch, s->order, s->n);
    } else {
        for (int64_t i = 0; i < s->n; i++)
            s->order[i] = i;
    }
    s->epoch = epoch;
}

int64_t pst_seeds_of(struct pst_seeds *s, uint64_t batch, int64_t *out)
{
    order_epoch(s, (int64_t)(batch / s->batches));
    int64_t begin = (int64_t)(batch % s->batches) * s->batch;
    int64_t n = pst_min_i64(s->batch, s->n - begin);
    for (int64_t i = 0; i < n; i++)
        out[i] = s->ids[s->order[begin + i]];
    return n;
}

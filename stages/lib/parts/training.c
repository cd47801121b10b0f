/* training.c: opens buckets, order and epochs together. */
#include "stages/lib/parts/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

pst_rc pst_parts_training_path(const char *run_dir, char path[PST_PATH_MAX])
{
    return snprintf(path, PST_PATH_MAX, "%s/buckets.safetensors", run_dir) < PST_PATH_MAX
               ? PST_OK
               : pst_fail(PST_E_LIMIT, "the path of the run directory is too long: %s", run_dir);
}

void pst_parts_negatives(enum pst_parts_negatives from, int64_t vertices, int64_t partitions, int64_t buffer,
                         int64_t *chunks, int64_t *negatives)
{
    if (from == PST_PARTS_SAMPLED)
        return;
    const int64_t rows = (vertices + partitions - 1) / partitions; /* of a partition */
    *chunks = 1;
    *negatives = partitions == 1 ? vertices : pst_min_i64(vertices, buffer * rows);
}

static pst_rc check(const struct pst_buckets *b, const char *path, const char *digest, int partitions)
{
    if (strcmp(b->digest, digest) != 0)
        return pst_fail(
            PST_E_ARG,
            "%s has the edges of another dataset (digest %s; expected %s): make it again with `penstock "
            "partition`",
            path, b->digest, digest);
    if (b->parts.partitions != partitions)
        return pst_fail(
            PST_E_ARG,
            "%s has %d partitions, but the parameter partitions is %d: make it again with `penstock "
            "partition --partitions %d`",
            path, b->parts.partitions, partitions, partitions);
    return PST_OK;
}

pst_rc pst_parts_training_open(struct pst_parts_training *t, const char *path, const char *digest,
                               int partitions, int buffer, enum pst_order_kind kind)
{
    const size_t all = (size_t)partitions * (size_t)partitions;
    pst_rc rc = pst_buckets_open(&t->buckets, path);
    if (rc == PST_OK)
        rc = check(&t->buckets, path, digest, partitions);
    if (rc == PST_OK)
        rc = pst_order_build(&t->order, kind, partitions, buffer);
    if (rc != PST_OK)
        return rc;
    if (t->between_exchanges)
        pst_order_between_exchanges(&t->order);
    t->bucket_edges = malloc(all * sizeof *t->bucket_edges);
    if (!t->bucket_edges)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count the edges of %zu buckets", all);
    for (size_t i = 0; i < all; i++)
        t->bucket_edges[i] = t->buckets.at[i + 1] - t->buckets.at[i];
    t->epochs.order = &t->order;
    t->epochs.bucket_edges = t->bucket_edges;
    return pst_parts_epochs_open(&t->epochs);
}

void pst_parts_training_close(struct pst_parts_training *t)
{
    pst_parts_epochs_close(&t->epochs);
    pst_order_release(&t->order);
    pst_buckets_close(&t->buckets);
    free(t->bucket_edges);
    t->bucket_edges = NULL;
}

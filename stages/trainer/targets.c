/* targets.c: degrees, labels and targets of a minibatch's vertices. */
#include "stages/trainer/targets.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/gnn/layer.h"

/* ---- opening ------------------------------------------------------------------------------------- */

static pst_rc take(struct pst_trainer_targets *t, struct pst_trainer_values *values, size_t bytes,
                   const char *what)
{
    const uint64_t all = (uint64_t)t->most * bytes;
    values->bytes = bytes;
    if (pst_device_is_cuda(t->device)) {
        const pst_rc rc = pst_device_take(t->device, PST_TWIN_MEMORY_PINNED, all, what, &values->host);
        return rc == PST_OK ? pst_device_take(t->device, PST_TWIN_MEMORY_DEVICE, all, what, &values->device)
                            : rc;
    }
    values->host = malloc(all + 1);
    return values->host
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRIu64 " bytes for %s", all, what);
}

static pst_rc read_degrees(struct pst_trainer_targets *t)
{
    const int64_t *indptr = t->ds->indptr.map, vertices = t->ds->vertices;
    t->all = malloc(((size_t)vertices + 1) * sizeof *t->all);
    if (!t->all)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the degrees of %" PRId64 " vertices",
                        vertices);
    for (int64_t v = 0; v < vertices; v++) {
        const int64_t degree = indptr[v + 1] - indptr[v];
        if (degree < 0 || degree > INT32_MAX)
            return pst_fail(PST_E_FORMAT,
                            "%s: vertex %" PRId64 " has %" PRId64
                            " neighbours; expected 0 to 2147483647; `penstock verify` shows details",
                            t->ds->indptr.path, v, degree);
        t->all[v] = (int32_t)degree;
    }
    return PST_OK;
}

pst_rc pst_trainer_targets_open(struct pst_trainer_targets *t, const struct pst_gnn_model *model,
                                const struct pst_dataset *ds, int64_t most, struct pst_device *device)
{
    pst_rc rc = PST_OK;
    *t = (struct pst_trainer_targets){.ds = ds, .device = device, .most = most};
    if (model->kind->needs_degrees)
        rc = take(t, &t->degrees, sizeof(int64_t), "the degrees of a minibatch");
    if (rc == PST_OK && model->kind->needs_degrees)
        rc = read_degrees(t);
    if (rc == PST_OK && model->config.multilabel)
        rc = take(t, &t->multilabels, (size_t)model->config.classes, "the labels of a minibatch");
    if (rc == PST_OK && model->config.regression)
        rc =
            take(t, &t->numbers, (size_t)model->config.classes * sizeof(float), "the targets of a minibatch");
    if (rc != PST_OK)
        pst_trainer_targets_close(t);
    return rc;
}

void pst_trainer_targets_close(struct pst_trainer_targets *t)
{
    free(t->all);
    if (t->device && !pst_device_is_cuda(t->device)) { /* a GPU's memory is released with the device */
        free(t->degrees.host);
        free(t->multilabels.host);
        free(t->numbers.host);
    }
    *t = (struct pst_trainer_targets){.all = NULL};
}

/* ---- a minibatch --------------------------------------------------------------------------------- */

/* Values of n vertices, where the model computes. The step reports a failure of the copy, and ends before the
 * values on the host change. */
static const void *sent(const struct pst_trainer_targets *t, const struct pst_trainer_values *values,
                        int64_t n)
{
    if (!values->device)
        return values->host;
    (void)t->device->twin->copy(t->device->q, values->device, values->host, (size_t)n * values->bytes);
    return values->device;
}

/* The rows of n vertices, from those of all. */
static void pick(const struct pst_trainer_values *values, const void *all, const int64_t *vertices, int64_t n)
{
    char *to = values->host;
    for (int64_t i = 0; to && i < n; i++)
        memcpy(to + (size_t)i * values->bytes, (const char *)all + (size_t)vertices[i] * values->bytes,
               values->bytes);
}

static pst_rc check(const struct pst_trainer_targets *t, const int64_t *vertices, int64_t n)
{
    if (n > t->most)
        return pst_fail(PST_E_PEER,
                        "the minibatch has %" PRId64 " vertices; expected at most %" PRId64
                        ", the number for which the trainer was sized",
                        n, t->most);
    for (int64_t i = 0; i < n; i++)
        if (vertices[i] < 0 || vertices[i] >= t->ds->vertices)
            return pst_fail(PST_E_PEER,
                            "the minibatch contains vertex %" PRId64 ", but the graph has only %" PRId64
                            " vertices: use the same dataset for all stages",
                            vertices[i], t->ds->vertices);
    return PST_OK;
}

pst_rc pst_trainer_targets_bring(struct pst_trainer_targets *t, const int64_t *vertices,
                                 struct pst_gnn_batch *batch)
{
    const int64_t seeds = batch->mb.n[0], all = batch->mb.n[batch->mb.hops];
    int64_t *degrees = t->degrees.host;
    if (!degrees && !t->multilabels.host && !t->numbers.host)
        return PST_OK;
    const pst_rc rc = check(t, vertices, all);
    if (rc != PST_OK)
        return rc;
    for (int64_t i = 0; degrees && i < all; i++)
        degrees[i] = t->all[vertices[i]];
    pick(&t->multilabels, t->ds->multilabels.map, vertices, seeds);
    pick(&t->numbers, t->ds->targets.map, vertices, seeds);
    batch->targets = sent(t, &t->numbers, seeds);
    batch->degrees = sent(t, &t->degrees, all);
    batch->multilabels = sent(t, &t->multilabels, seeds);
    return PST_OK;
}

/* eval.c: see eval.h. */
#include "eval.h"
#include "../../common/error.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCK = 512 }; /* rows of one product, wherever they came from: results must not depend on chunks */

/* ---- opening ------------------------------------------------------------------------------------ */

static pst_rc kind_of(const struct pst_dataset *ds, enum pst_feature_kind *kind)
{
    switch (ds->features.dtype) {
    case PST_F32: *kind = PST_FEATURE_REAL; return PST_OK;
    case PST_F16: *kind = PST_FEATURE_HALF; return PST_OK;
    case PST_BF16: *kind = PST_FEATURE_BFLOAT; return PST_OK;
    default:
        return pst_fail(PST_E_UNSUPPORTED, "%s holds %s: the trainer reads float32, float16 and bfloat16",
                        ds->features.path, pst_dtype_name(ds->features.dtype));
    }
}

static pst_rc open_features(struct pst_eval *eval, uint64_t memory_bytes, uint64_t chunk_bytes)
{
    const struct pst_dataset *ds = eval->ds;
    const uint64_t block_bytes = BLOCK * ds->stride_bytes;
    const int64_t blocks = pst_max_i64(1, (int64_t)(chunk_bytes / block_bytes));
    eval->chunk_rows = pst_min_i64(blocks, (ds->vertices + BLOCK - 1) / BLOCK) * BLOCK;
    eval->chunk_bytes = (size_t)eval->chunk_rows * ds->stride_bytes;
    eval->drop = ds->features.data_bytes > memory_bytes;
    eval->fd = open(ds->features.path, O_RDONLY | O_CLOEXEC);
    if (eval->fd < 0)
        return pst_fail_errno("cannot open %s", ds->features.path);
    (void)posix_fadvise(eval->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return PST_OK;
}

/* An unlinked file of this size, mapped. */
static void *map_file(const char *dir, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/activations.XXXXXX", dir);
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        (void)pst_fail_errno("cannot create %s for activations", path);
        return NULL;
    }
    unlink(path);
    /* Space is reserved now: a full disk found later would be a SIGBUS. */
    const int failed = posix_fallocate(fd, 0, (off_t)bytes);
    void *memory = failed ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (failed)
        errno = failed;
    if (memory == MAP_FAILED)
        (void)pst_fail_errno(
            "cannot set aside %zu bytes in %s for activations (raise eval_memory to keep them in "
            "memory, or choose another run directory)",
            bytes, dir);
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

static pst_rc map_stored(struct pst_eval *eval, const char *spill_dir, uint64_t memory_bytes)
{
    const size_t kept = (size_t)eval->ds->vertices * (size_t)eval->ld_kept * sizeof(pst_real);
    eval->stored_bytes = kept + (size_t)eval->ds->vertices * (size_t)eval->ld * sizeof(pst_real);
    eval->spilled = eval->stored_bytes > memory_bytes;
    if (eval->spilled) {
        eval->kept = map_file(spill_dir, eval->stored_bytes);
        if (!eval->kept)
            return PST_E_IO;
    } else {
        eval->kept = pst_lazy_map(eval->stored_bytes);
        if (!eval->kept)
            return pst_fail(PST_E_NOMEM,
                            "no memory for %zu bytes of activations: lower eval_memory to spill them",
                            eval->stored_bytes);
    }
    eval->projected = eval->kept + eval->ds->vertices * eval->ld_kept;
    return PST_OK;
}

static pst_rc map_buffers(struct pst_eval *eval, const struct pst_model_config *c)
{
    const size_t real = sizeof(pst_real);
    eval->chunk = pst_lazy_map(eval->chunk_bytes);
    if (eval->kind != PST_FEATURE_REAL)
        eval->wide = pst_lazy_map((size_t)(BLOCK * pst_width(c->in)) * real);
    for (int i = 0; i < 2; i++)
        eval->block[i] = pst_lazy_map((size_t)(BLOCK * eval->ld) * real);
    eval->scale = calloc((size_t)c->hidden, real);
    eval->offset = calloc((size_t)c->hidden, real);
    eval->predicted = pst_lazy_map((size_t)eval->ds->vertices * sizeof *eval->predicted);
    if (!eval->chunk || (eval->kind != PST_FEATURE_REAL && !eval->wide) || !eval->block[0] ||
        !eval->block[1] || !eval->scale || !eval->offset || !eval->predicted)
        return pst_fail(PST_E_NOMEM,
                        "no memory for the buffers of the evaluation (%zu bytes of features at a time)",
                        eval->chunk_bytes);
    return PST_OK;
}

pst_rc pst_eval_open(struct pst_eval *eval, const struct pst_model_config *config,
                     const struct pst_dataset *ds, const char *spill_dir, uint64_t memory_bytes,
                     uint64_t chunk_bytes)
{
    assert(config->in == ds->feature_dim && ds->indptr.map && ds->indices.map && ds->labels.map);
    memset(eval, 0, sizeof *eval);
    eval->fd = -1;
    eval->ds = ds;
    eval->graph = (struct pst_csc){.indptr = ds->indptr.map,
                                   .indices = ds->indices.map,
                                   .index_bytes = ds->indices.dtype == PST_I64 ? 8 : 4,
                                   .vertices = ds->vertices,
                                   .edges = ds->edges};
    eval->ld_kept = pst_width(config->hidden);
    eval->ld = pst_width(pst_max_i64(config->hidden, config->classes));
    pst_rc rc = kind_of(ds, &eval->kind);
    if (rc == PST_OK)
        rc = open_features(eval, memory_bytes, chunk_bytes);
    if (rc == PST_OK)
        rc = map_buffers(eval, config);
    if (rc == PST_OK && config->aggregate)
        rc = map_stored(eval, spill_dir, memory_bytes);
    if (rc != PST_OK)
        pst_eval_close(eval);
    return rc;
}

void pst_eval_close(struct pst_eval *eval)
{
    if (!eval->ds)
        return;
    if (eval->fd >= 0)
        close(eval->fd);
    pst_lazy_unmap(eval->chunk, eval->chunk_bytes);
    pst_lazy_unmap(eval->wide, (size_t)(BLOCK * pst_width(eval->ds->feature_dim)) * sizeof(pst_real));
    for (int i = 0; i < 2; i++)
        pst_lazy_unmap(eval->block[i], (size_t)(BLOCK * eval->ld) * sizeof(pst_real));
    pst_lazy_unmap(eval->kept, eval->stored_bytes);
    pst_lazy_unmap(eval->predicted, (size_t)eval->ds->vertices * sizeof *eval->predicted);
    free(eval->scale);
    free(eval->offset);
    memset(eval, 0, sizeof *eval);
}

/* ---- one block ---------------------------------------------------------------------------------- */

static void product(const struct pst_model *model, const pst_real *x, int64_t ld_x, int64_t n,
                    const struct pst_layer *layer, int64_t weight, pst_real *y, int64_t ld_y)
{
    pst_k_gemm(NULL, false, false, n, layer->out, layer->in, 1, x, ld_x, model->weight + weight, layer->out,
               0, y, ld_y, 1);
}

static void normalise(struct pst_eval *eval, const struct pst_model *model, const struct pst_layer *layer,
                      pst_real *y, int64_t n)
{
    const pst_real *gain = model->weight + layer->gain, *shift = model->weight + layer->shift;
    if (model->config.norm == PST_NORM_LAYER) {
        pst_k_layer_norm(NULL, y, eval->ld, n, layer->out, gain, shift, NULL, NULL);
        return;
    }
    const pst_real *mean = model->running + layer->running, *variance = mean + layer->out;
    for (int64_t j = 0; j < layer->out; j++) {
        const double scale = (double)gain[j] / sqrt((double)variance[j] + PST_NORM_EPS);
        eval->scale[j] = (pst_real)scale;
        eval->offset[j] = (pst_real)((double)shift[j] - (double)mean[j] * scale);
    }
    pst_k_affine(NULL, y, eval->ld, n, layer->out, eval->scale, eval->offset);
}

/* What follows the linear part of a layer; input: of the residual. */
static void finish_layer(struct pst_eval *eval, const struct pst_model *model, const struct pst_layer *layer,
                         pst_real *y, int64_t n, const pst_real *input, int64_t ld_input)
{
    const struct pst_dropout none = {0};
    if (layer->gain >= 0)
        normalise(eval, model, layer, y, n);
    if (layer->bias >= 0)
        pst_k_bias_relu_dropout(NULL, y, eval->ld, model->weight + layer->bias, NULL, n, layer->out, false,
                                &none);
    if (layer->residual)
        pst_k_add(NULL, y, eval->ld, input, ld_input, n, layer->out);
    if (!layer->last)
        pst_k_bias_relu_dropout(NULL, y, eval->ld, NULL, NULL, n, layer->out, true, &none);
}

static void predict(struct pst_eval *eval, const pst_real *logits, int64_t first, int64_t n, int64_t classes)
{
    for (int64_t i = 0; i < n; i++) {
        const pst_real *row = logits + i * eval->ld;
        int32_t best = 0;
        for (int32_t c = 1; c < classes; c++)
            if (row[c] > row[best])
                best = c;
        eval->predicted[first + i] = best;
    }
}

/* ---- the first layer, while features stream by --------------------------------------------------- */

static pst_rc read_rows(struct pst_eval *eval, int64_t first, int64_t n)
{
    const struct pst_array *f = &eval->ds->features;
    uint64_t at = f->data_at + (uint64_t)first * eval->ds->stride_bytes;
    uint64_t left = (uint64_t)n * eval->ds->stride_bytes;
    const uint64_t begin = at, bytes = left;
    for (char *to = eval->chunk; left > 0;) {
        const ssize_t got = pread(eval->fd, to, left, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return pst_fail_errno("cannot read %s at byte %llu", f->path, (unsigned long long)at);
        if (got == 0)
            return pst_fail(PST_E_FORMAT, "%s ends at byte %llu: it was cut short while in use", f->path,
                            (unsigned long long)at);
        to += got;
        at += (uint64_t)got;
        left -= (uint64_t)got;
    }
    if (eval->drop)
        (void)posix_fadvise(eval->fd, (off_t)begin, (off_t)bytes, POSIX_FADV_DONTNEED);
    return PST_OK;
}

/* All layers of a block, for a model without the graph. */
static void plain_block(struct pst_eval *eval, const struct pst_model *model, const pst_real *x, int64_t ld_x,
                        int64_t first, int64_t n)
{
    for (int l = 0; l < model->config.layers; l++) {
        const struct pst_layer *layer = &model->layer[l];
        pst_real *y = eval->block[l % 2];
        product(model, x, ld_x, n, layer, layer->self, y, eval->ld);
        finish_layer(eval, model, layer, y, n, x, ld_x);
        x = y;
        ld_x = eval->ld;
    }
    predict(eval, x, first, n, model->config.classes);
}

static void first_block(struct pst_eval *eval, const struct pst_model *model, const char *rows, int64_t first,
                        int64_t n)
{
    const struct pst_layer *layer = &model->layer[0];
    const struct pst_dataset *ds = eval->ds;
    const pst_real *x = (const pst_real *)(const void *)rows;
    int64_t ld_x = (int64_t)(ds->stride_bytes / sizeof(pst_real));
    if (eval->wide) {
        ld_x = pst_width(layer->in);
        pst_k_widen(NULL, rows, ds->stride_bytes, eval->kind == PST_FEATURE_BFLOAT, eval->wide, ld_x, n,
                    layer->in);
        x = eval->wide;
    }
    if (!model->config.aggregate) {
        plain_block(eval, model, x, ld_x, first, n);
        return;
    }
    product(model, x, ld_x, n, layer, layer->self, eval->kept + first * eval->ld_kept, eval->ld_kept);
    product(model, x, ld_x, n, layer, layer->neigh, eval->projected + first * eval->ld, eval->ld);
}

static pst_rc stream_features(struct pst_eval *eval, const struct pst_model *model)
{
    const int64_t vertices = eval->ds->vertices;
    for (int64_t first = 0; first < vertices; first += eval->chunk_rows) {
        const int64_t rows = pst_min_i64(eval->chunk_rows, vertices - first);
        const pst_rc rc = read_rows(eval, first, rows);
        if (rc != PST_OK)
            return rc;
        for (int64_t at = 0; at < rows; at += BLOCK)
            first_block(eval, model, eval->chunk + (uint64_t)at * eval->ds->stride_bytes, first + at,
                        pst_min_i64(BLOCK, rows - at));
    }
    return PST_OK;
}

/* ---- layers over the whole graph ----------------------------------------------------------------- */

/* One layer's output for a block of vertices, from `kept` and `projected` of the layer before. */
static pst_rc combine_block(struct pst_eval *eval, const struct pst_model *model, int l, int64_t first,
                            int64_t n)
{
    const struct pst_layer *layer = &model->layer[l];
    pst_real *y = eval->block[0], *self = eval->block[1], *kept = eval->kept + first * eval->ld_kept;
    const pst_rc rc =
        pst_k_mean_csc(NULL, &eval->graph, first, n, eval->projected, eval->ld, y, eval->ld, layer->out);
    if (rc != PST_OK)
        return pst_fail(
            rc,
            "%s or %s: the neighbours of vertices %lld to %lld are out of range; `penstock verify` "
            "says where",
            eval->ds->indptr.path, eval->ds->indices.path, (long long)first, (long long)(first + n - 1));
    if (l == 0) {
        pst_k_add(NULL, y, eval->ld, kept, eval->ld_kept, n, layer->out);
    } else {
        product(model, kept, eval->ld_kept, n, layer, layer->self, self, eval->ld);
        pst_k_add(NULL, y, eval->ld, self, eval->ld, n, layer->out);
    }
    finish_layer(eval, model, layer, y, n, kept, eval->ld_kept);
    if (layer->last)
        predict(eval, y, first, n, layer->out);
    else
        pst_k_gather(NULL, y, (uint64_t)eval->ld * sizeof *y, NULL, kept, (uint64_t)eval->ld_kept * sizeof *y,
                     NULL, n, (uint64_t)layer->out * sizeof *y);
    return PST_OK;
}

static pst_rc run_layers(struct pst_eval *eval, const struct pst_model *model)
{
    const int64_t vertices = eval->ds->vertices;
    for (int l = 0; l < model->config.layers; l++) {
        const struct pst_layer *layer = &model->layer[l];
        for (int64_t first = 0; l > 0 && first < vertices; first += BLOCK)
            product(model, eval->kept + first * eval->ld_kept, eval->ld_kept,
                    pst_min_i64(BLOCK, vertices - first), layer, layer->neigh,
                    eval->projected + first * eval->ld, eval->ld);
        for (int64_t first = 0; first < vertices; first += BLOCK) {
            const pst_rc rc = combine_block(eval, model, l, first, pst_min_i64(BLOCK, vertices - first));
            if (rc != PST_OK)
                return rc;
        }
    }
    return PST_OK;
}

static pst_rc score(const struct pst_eval *eval, const struct pst_array *split, double *accuracy)
{
    const int32_t *labels = eval->ds->labels.map;
    const int64_t *ids = split->map;
    int64_t right = 0, counted = 0;
    for (int64_t i = 0; ids && i < split->shape[0]; i++) {
        if (ids[i] < 0 || ids[i] >= eval->ds->vertices)
            return pst_fail(PST_E_FORMAT, "%s: entry %lld is vertex %lld; the graph has %lld", split->path,
                            (long long)i, (long long)ids[i], (long long)eval->ds->vertices);
        if (labels[ids[i]] < 0)
            continue;
        right += eval->predicted[ids[i]] == labels[ids[i]];
        counted++;
    }
    *accuracy = counted ? (double)right / (double)counted : -1;
    return PST_OK;
}

pst_rc pst_eval_run(struct pst_eval *eval, const struct pst_model *model, double accuracy[3])
{
    pst_rc rc = stream_features(eval, model);
    if (rc == PST_OK && model->config.aggregate)
        rc = run_layers(eval, model);
    for (int s = PST_TRAIN; s <= PST_TEST && rc == PST_OK; s++)
        rc = score(eval, &eval->ds->split[s], &accuracy[s]);
    return rc == PST_OK ? PST_OK : pst_wrap(rc, "evaluation");
}

/* gen_impl.c: topology, features and splits, which both generators write alike. */
#include "common/store/dataset/stride.h"
#include "common/store/make/gen_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/make/gen_random.h"
#include "common/store/make/shuffle.h"

#define FEATURE_BUFFER_BYTES (1u << 20) /* at least one row; more is not faster */

static pst_rc draw_all(struct pst_csc_builder *csc, int64_t edges, pst_gen_edges_fn fn, void *ctx,
                       struct pst_progress *progress)
{
    int64_t *source = malloc(2 * sizeof *source * PST_CSC_BUILDER_EDGE_BLOCK);
    if (source == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a block of edges");
    int64_t *target = source + PST_CSC_BUILDER_EDGE_BLOCK;
    pst_rc rc = PST_OK;
    for (int64_t first = 0; rc == PST_OK && first < edges; first += PST_CSC_BUILDER_EDGE_BLOCK) {
        int64_t count = pst_min_i64(PST_CSC_BUILDER_EDGE_BLOCK, edges - first);
        rc = fn(ctx, first, count, source, target);
        if (rc == PST_OK)
            rc = pst_csc_builder_add(csc, source, target, NULL, count);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, (uint64_t)count);
    }
    free(source);
    return rc;
}

pst_rc pst_gen_topology(const struct pst_csc_builder_spec *spec, int64_t vertices, int64_t edges,
                        pst_gen_edges_fn fn, void *ctx, struct pst_progress *progress)
{
    struct pst_csc_builder *csc;
    pst_rc rc = pst_csc_builder_new(&csc, spec);
    pst_progress_begin(progress, "edges: drawing", (uint64_t)edges, false);
    if (rc == PST_OK)
        rc = draw_all(csc, edges, fn, ctx, progress);
    if (rc == PST_OK) {
        pst_progress_end(progress);
        rc = pst_csc_builder_finish(csc, vertices, progress);
    }
    pst_csc_builder_free(csc);
    return rc;
}

static pst_rc stream_rows(struct pst_build_row_writer *w, const int64_t shape[2], void *buffer, int64_t block,
                          int64_t dim, pst_gen_feature_fn fn, const void *ctx, struct pst_progress *progress)
{
    int64_t vertices = shape[0], stride = shape[1];
    for (int64_t first = 0; first < vertices; first += block) {
        int64_t rows = pst_min_i64(block, vertices - first);
        pst_rc rc = fn(ctx, first, rows, dim, stride, buffer);
        if (rc == PST_OK)
            rc = pst_build_row_writer_put(w, buffer, rows);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, (uint64_t)rows * w->row_bytes);
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

pst_rc pst_gen_features(struct pst_build *b, int type, int64_t vertices, int64_t dim, enum pst_dtype dtype,
                        uint64_t stride_bytes, pst_gen_feature_fn fn, const void *ctx,
                        struct pst_progress *progress)
{
    pst_rc rc = pst_stride_check(stride_bytes, dim, dtype);
    if (rc != PST_OK || dim == 0)
        return rc;
    uint64_t stride = stride_bytes != 0 ? stride_bytes : pst_stride_for(dim, dtype);
    int64_t block = pst_max_i64(1, (int64_t)(FEATURE_BUFFER_BYTES / stride));
    void *buffer = calloc((size_t)block, stride);
    if (buffer == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " rows of %" PRIu64 " bytes",
                        block, stride);
    const int64_t shape[2] = {vertices, (int64_t)(stride / pst_dtype_bytes(dtype))};
    struct pst_build_row_writer *w = calloc(1, sizeof *w); /* paths: too much for the stack */
    pst_build_note_features(b, type, dim, stride);
    rc = w != NULL ? pst_build_rows(b, type, dtype, shape, w)
                   : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate paths");
    pst_progress_begin(progress, "features", (uint64_t)vertices * stride, true);
    if (rc == PST_OK)
        rc = stream_rows(w, shape, buffer, block, dim, fn, ctx, progress);
    if (rc == PST_OK)
        rc = pst_build_rows_end(b, type, w);
    if (rc == PST_OK)
        pst_progress_end(progress); /* after the sync, so that the rate is the disk's */
    if (w != NULL)
        pst_build_row_writer_release(w);
    free(w);
    free(buffer);
    return rc;
}

void pst_gen_uniform(uint64_t seed, int64_t v, int64_t dim, float *out)
{
    for (int64_t j = 0; j < dim; j += 4) {
        struct pst_rng_block d = pst_gen_draw(seed, PST_GEN_FEATURE, (uint64_t)v, (uint32_t)(j / 4));
        for (int64_t k = 0; k < 4 && j + k < dim; k++)
            out[j + k] = (float)((int32_t)d.word[k] >> 8) * 0x1p-23f;
    }
}

static int compare_ids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static pst_rc write_split(struct pst_build *b, enum pst_array_id id, int64_t vertices, int64_t from,
                          int64_t count, uint64_t seed)
{
    if (count == 0)
        return PST_OK;
    int64_t *ids = malloc((size_t)count * sizeof *ids);
    if (ids == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " ids of %s", count,
                        pst_array_id_name(id));
    struct pst_shuffle shuffle;
    pst_shuffle_init(&shuffle, vertices, seed, PST_GEN_SPLIT);
    for (int64_t i = 0; i < count; i++)
        ids[i] = pst_shuffle_at(&shuffle, from + i);
    qsort(ids, (size_t)count, sizeof *ids, compare_ids);
    pst_rc rc = pst_build_array_from(b, id, PST_I64, count, ids);
    free(ids);
    return rc;
}

pst_rc pst_gen_splits(struct pst_build *b, int64_t vertices, const int64_t count[3], uint64_t seed)
{
    int64_t from = 0;
    for (int i = 0; i < 3; i++) {
        assert(count[i] >= 0 && count[i] <= vertices - from);
        pst_rc rc = write_split(b, (enum pst_array_id)(PST_ARRAY_TRAIN + i), vertices, from, count[i], seed);
        if (rc != PST_OK)
            return rc;
        from += count[i];
    }
    return PST_OK;
}

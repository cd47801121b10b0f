/* rows.c: feature rows to one file or to stripes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/build/build_impl.h"
#include "common/util/file.h"
#include "common/store/dataset/rows.h"
#include "common/store/dataset/stripe.h"

static void name_of(const struct pst_build_row_writer *w, int type, int k, char name[PST_NAME_MAX])
{
    if (w->files > 1)
        pst_build_stripe_name(k, name);
    else if (type >= 0)
        pst_build_features_name(type, name);
    else
        (void)snprintf(name, PST_NAME_MAX, "%s.npy", pst_array_id_name(PST_ARRAY_FEATURES));
}

pst_rc pst_build_rows(struct pst_build *b, int type, enum pst_dtype dtype, const int64_t shape[2],
                      struct pst_build_row_writer *w)
{
    const int files = b->stripes > 1 ? b->stripes : 1;
    *w = (struct pst_build_row_writer){.files = files,
                                       .row_bytes = (uint64_t)shape[1] * pst_dtype_bytes(dtype)};
    uint64_t written = 0;
    pst_rc rc = PST_OK;
    for (int k = 0; k < PST_DATASET_FEATURE_FILES_MAX; k++)
        w->file[k].fd = -1;
    assert(files <= PST_DATASET_FEATURE_FILES_MAX);
    if (files > 1 && type >= 0)
        return pst_fail(PST_E_ARG, "--stripes: a dataset with several vertex types has one features file for "
                                   "each type: leave --stripes out, or import one type");
    for (int k = 0; k < files && rc == PST_OK; k++) {
        const int64_t part[2] = {
            (int64_t)pst_stripe_rows((uint64_t)shape[0], 1, (uint32_t)k, (uint32_t)files), shape[1]};
        char name[PST_NAME_MAX], far[4096] = "";
        name_of(w, type, k, name);
        if (files > 1)
            rc = pst_build_stripe_link_name(b, k, far);
        if (rc == PST_OK)
            rc = pst_build_file_go_on(b, name, far, dtype, 2, part, &w->file[k]);
        if (rc == PST_OK)
            rc =
                pst_file_room_for(w->file[k].path, w->file[k].expected - w->file[k].written, w->file[k].path);
        written += w->file[k].written;
    }
    w->next = (int64_t)(written / w->row_bytes);
    return rc;
}

pst_rc pst_build_row_writer_put(struct pst_build_row_writer *w, const void *rows, int64_t n)
{
    pst_rc rc = PST_OK;
    if (w->files == 1)
        rc = pst_array_write(&w->file[0], rows, (size_t)n * w->row_bytes);
    for (int64_t i = 0; w->files > 1 && i < n && rc == PST_OK; i++)
        rc = pst_array_write(&w->file[(w->next + i) % w->files],
                             (const char *)rows + (uint64_t)i * w->row_bytes, w->row_bytes);
    w->next += n;
    return rc;
}

pst_rc pst_build_rows_note(struct pst_build *b, int type, struct pst_build_row_writer *w)
{
    pst_rc rc = PST_OK;
    for (int k = 0; k < w->files && rc == PST_OK; k++) {
        char name[PST_NAME_MAX];
        name_of(w, type, k, name);
        rc = pst_build_file_note(b, name, &w->file[k]);
    }
    return rc;
}

/* One stripe is finished, and can be told from the others. */
static pst_rc end_stripe(struct pst_build *b, int k, struct pst_array_writer *w)
{
    struct pst_array_entry *e = &b->manifest.stripe[k];
    char name[PST_NAME_MAX], path[4096 + PST_NAME_MAX];
    pst_build_stripe_name(k, name);
    (void)snprintf(path, sizeof path, "%s/%s", b->partial, name);
    pst_rc rc = pst_build_file_end(b, e, name, w);
    if (rc == PST_OK)
        rc = pst_stripe_head(path, &e->head);
    char *slash = strrchr(w->path, '/');
    if (rc == PST_OK && b->stripe_dirs != NULL && slash != NULL) {
        *slash = '\0';
        rc = pst_file_sync_dir(w->path);
    }
    return rc;
}

static pst_rc end_stripes(struct pst_build *b, struct pst_build_row_writer *w)
{
    struct pst_manifest *m = &b->manifest;
    pst_rc rc = pst_manifest_stripes(m, w->files);
    b->journal.held = true; /* the stripes are all finished, or none is */
    for (int k = 0; k < w->files && rc == PST_OK; k++)
        rc = end_stripe(b, k, &w->file[k]);
    b->journal.held = false;
    if (rc == PST_OK)
        m->array[PST_ARRAY_FEATURES] = (struct pst_array_entry){.present = true,
                                                                .dtype = m->stripe[0].dtype,
                                                                .rank = 2,
                                                                .shape = {w->next, m->stripe[0].shape[1]}};
    return rc == PST_OK ? pst_journal_save(&b->journal) : rc;
}

pst_rc pst_build_rows_end(struct pst_build *b, int type, struct pst_build_row_writer *w)
{
    char name[PST_NAME_MAX];
    if (w->files > 1)
        return end_stripes(b, w);
    name_of(w, type, 0, name);
    return pst_build_file_end(
        b, type < 0 ? &b->manifest.array[PST_ARRAY_FEATURES] : &b->manifest.vertex_type[type].features, name,
        &w->file[0]);
}

void pst_build_note_features(struct pst_build *b, int type, int64_t dim, uint64_t stride_bytes)
{
    *(type < 0 ? &b->manifest.feature_dim : &b->manifest.vertex_type[type].feature_dim) = dim;
    *(type < 0 ? &b->manifest.stride_bytes : &b->manifest.vertex_type[type].stride_bytes) = stride_bytes;
}

void pst_build_row_writer_release(struct pst_build_row_writer *w)
{
    for (int k = 0; k < w->files; k++)
        pst_array_writer_release(&w->file[k]);
    w->files = 0;
}

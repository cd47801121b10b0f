/* rows.h: a dataset's feature rows, in one file or in n stripes, where row v is row v / n of file v mod n.
 * Other code that reads rows need not know of stripes. Owner: the caller; open and close pair. Threads:
 * reading is safe from several. */
#ifndef PST_ROWS_H
#define PST_ROWS_H

#include <assert.h>

#include "common/store/store.h"

PST_BEGIN_DECLS

#define PST_STRIPE_HEAD (64u << 10) /* enough rows to tell stripes apart, and nothing to read */

/* XXH3-64 of a file's first PST_STRIPE_HEAD bytes, of all where it is shorter. */
PST_API PST_MUST_USE pst_rc pst_stripe_head(const char *path, uint64_t *head);

/* The k-th file of the features, and how many there are. */
static inline int pst_feature_files(const struct pst_dataset *ds)
{
    return ds->stripes > 0 ? ds->stripes : 1;
}
static inline const struct pst_array *pst_feature_file(const struct pst_dataset *ds, int k)
{
    return ds->stripes > 0 ? &ds->stripe[k] : &ds->features;
}

/* Maps all files, of all types; pst_dataset_close ends it. */
PST_API PST_MUST_USE pst_rc pst_rows_map_features(struct pst_dataset *ds);
/* Row v, once they are mapped: stride_bytes of it. */
static inline const void *pst_feature_row(const struct pst_dataset *ds, int64_t v)
{
    const int n = pst_feature_files(ds);
    return (const char *)pst_feature_file(ds, (int)(v % n))->map + (uint64_t)(v / n) * ds->stride_bytes;
}

#define PST_ROWS_TYPES_MAX                                                                                   \
    8 /* types whose features can be joined: each has an array that requests can name */

/* Lets stages read the features of all types as one array, whose rows are as wide as the widest type's: a row
 * of a narrower type is zero behind its own columns, and that of a type without features is zero. Sets
 * feature_dim, stride_bytes and features of ds, which are not a file. Does nothing to a dataset without
 * types. PST_E_UNSUPPORTED: no type has features, they differ in their element type, or there are more than
 * PST_ROWS_TYPES_MAX types. */
PST_API PST_MUST_USE pst_rc pst_rows_join_types(struct pst_dataset *ds);

/* The type of vertex v; -1: the dataset has no types. */
static inline int pst_rows_type_of(const struct pst_dataset *ds, int64_t v)
{
    int type = ds->vertex_types - 1;
    while (type > 0 && v < ds->vertex_type[type].first)
        type--;
    return type;
}

/* Row of vertex v of one type; v counts within the type. Type -1: all vertices, v counts over all of them. */
static inline const void *pst_rows_type_row(const struct pst_dataset *ds, int type, int64_t v)
{
    if (type < 0)
        return pst_feature_row(ds, v);
    assert(ds->vertex_type != NULL && type < ds->vertex_types);
    const struct pst_vertex_type *t = &ds->vertex_type[type];
    return (const char *)t->features.map + (uint64_t)v * t->stride_bytes;
}

/* The files open for reading through the page cache. */
struct pst_row_files {
    const struct pst_array *file;
    int files; /* 0: not open */
    uint64_t stride_bytes;
    int fd[PST_DATASET_FEATURE_FILES_MAX]; /* of joined types: -1 for a type without features */
};
/* file: as many as files, which must live as long, or an array of joined types. Fails: PST_E_IO; nothing is
 * open then. */
PST_API PST_MUST_USE pst_rc pst_row_files_open(struct pst_row_files *r, const struct pst_array *file,
                                               int files, uint64_t stride_bytes);
PST_API void pst_row_files_close(struct pst_row_files *r);
/* Rows of vertices first to first + n - 1 to out, one after the other. Fails: PST_E_IO, PST_E_FORMAT when a
 * file ends, or a part of a dataset does not have them. */
PST_API PST_MUST_USE pst_rc pst_row_files_read(const struct pst_row_files *r, int64_t first, int64_t n,
                                               void *out);
/* posix_fadvise on the bytes of these rows. */
PST_API void pst_row_files_advise(const struct pst_row_files *r, int64_t first, int64_t n, int advice);

PST_END_DECLS
#endif

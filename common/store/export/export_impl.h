/* export_impl.h: the state of one export, shared by its files. Owner: export.c. Threads: one. */
#ifndef PST_EXPORT_IMPL_H
#define PST_EXPORT_IMPL_H

#include <jansson.h>
#include <stdio.h>

#include "common/store/dataset/array.h"
#include "common/store/dataset/manifest.h"
#include "common/store/export/export.h"

#define PST_EXPORT_PATH_MAX (PST_PATH_MAX + 2 * PST_NAME_MAX) /* of a file in the directory */

struct pst_export_job {
    const struct pst_dataset *ds; /* checked; features mapped */
    char partial[PST_PATH_MAX];   /* the directory that is made */
    struct pst_progress *progress;
};

extern const char *const pst_export_parts[3]; /* train, val, test */

void pst_export_path(const struct pst_export_job *x, const char *name, char path[PST_EXPORT_PATH_MAX]);

/* Calls fn for each split, with what its files' names end with: "" for the first, "_1", "_2" and so on for
 * the others. */
typedef pst_rc pst_export_split_fn(struct pst_export_job *x, const struct pst_array part[3],
                                   const char *ending);
PST_MUST_USE pst_rc pst_export_each_split(struct pst_export_job *x, pst_export_split_fn *fn);

/* arrays.c: edges.npy, feat.npy, labels.npy, train_idx.npy and so on. */
PST_MUST_USE pst_rc pst_export_arrays(struct pst_export_job *x);

/* meta.c: meta.json. Takes kept: names of the arrays that are exported under their own names. */
PST_MUST_USE pst_rc pst_export_meta(const struct pst_export_job *x, json_t *kept,
                                    enum pst_export_format format);

/* feat.npy, or feat_K.npy of one type of vertices: without padding. type -1: all. */
PST_MUST_USE pst_rc pst_export_features(struct pst_export_job *x, int type);

/* A new text file; finish says whether all of it is on the disk, and closes it. */
FILE *pst_export_create(const struct pst_export_job *x, const char *name);
PST_MUST_USE pst_rc pst_export_finish(FILE *f, const char *name);

/* The source of edge i; -1, and the error is told, where it is no vertex. */
int64_t pst_export_source(const struct pst_dataset *ds, int64_t i);

/* csv.c: text, with what the source called the vertices. rows NULL: the graph, labels and splits. */
PST_MUST_USE pst_rc pst_export_csv(struct pst_export_job *x, const struct pst_array *rows);

/* types.c: a graph of several types. Edges of each in files of their own, with ids within the types of
 * their ends: edges_K.npy (2, E), or edges_K.csv without a header. */
PST_MUST_USE pst_rc pst_export_typed_edges(struct pst_export_job *x, enum pst_export_format format);

/* The type of vertex v. */
const struct pst_vertex_type *pst_export_type_of(const struct pst_dataset *ds, int64_t v);

/* graphbolt.c: metadata.yaml and, for npy, the splits as seeds and labels of each type. */
PST_MUST_USE pst_rc pst_export_graphbolt(struct pst_export_job *x, enum pst_export_format format);

#endif

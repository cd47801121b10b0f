/* export_impl.h: the state of one export, shared by its files. Owner: export.c. Threads: one. */
#ifndef PST_EXPORT_IMPL_H
#define PST_EXPORT_IMPL_H

#include <jansson.h>
#include <stdio.h>

#include "common/store/dataset/array.h"
#include "common/store/dataset/manifest.h"
#include "common/store/export/export.h"

struct pst_export_job {
    const struct pst_dataset *ds; /* checked; features mapped where they are written */
    char partial[4096];           /* the directory that is made */
    struct pst_progress *progress;
};

/* Room: 4096 + 64. */
void pst_export_path(const struct pst_export_job *x, const char *name, char path[4096 + 64]);

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

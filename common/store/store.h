/* store.h: opens a dataset on disk. A dataset is a directory with dataset.json and .npy arrays. The data of
 * an array begins at byte 4096 (PST_PAGE), so that NumPy can map it, and O_DIRECT and NVMe can read it in
 * place.
 *
 * Owner: pst_dataset_open fills what the caller owns; pst_dataset_close releases it. Threads: an open
 * dataset is read-only and may be shared. */
#ifndef PST_STORE_H
#define PST_STORE_H

#include "common/base.h"
#include "common/util/dtype.h"

PST_BEGIN_DECLS

struct pst_vertex_type;

/* One array file, not necessarily mapped. */
struct pst_array {
    char path[4096];
    enum pst_dtype dtype;
    int rank;          /* 1 or 2 */
    int64_t shape[2];  /* as stored: rows, and columns including padding (1 when rank is 1) */
    int64_t first_row; /* of features of a part of a cut dataset: the vertex that row 0 belongs to */
    bool fortran;      /* column-major; only pst_array_open_edges sets it */
    uint64_t data_at;  /* byte where data begins */
    uint64_t data_bytes;
    /* Not NULL: the array is no file, but the features of so many types, one type after the other (rows.h).
     */
    const struct pst_vertex_type *joined;
    int joined_types;
    const void *map; /* of the data; NULL until pst_array_map */
    void *map_base;
    size_t map_bytes;
};

/* Reads and checks the .npy header (versions 1 to 3, C order, little endian) against the file's size. */
PST_API PST_MUST_USE pst_rc pst_array_open(struct pst_array *array, const char *path);
/* The same for arrays of shape (2, E) or (E, 2), which may also be column-major, as from numpy.save(edges.T).
 */
PST_API PST_MUST_USE pst_rc pst_array_open_edges(struct pst_array *array, const char *path);
/* Opens a file of numbers without a header. Its size must fit the shape. */
PST_API PST_MUST_USE pst_rc pst_array_open_raw(struct pst_array *array, const char *path,
                                               enum pst_dtype dtype, int rank, const int64_t shape[2]);
PST_API PST_MUST_USE pst_rc pst_array_map(struct pst_array *array); /* read-only, shared */
PST_API void pst_array_close(struct pst_array *array);

#define PST_DATASET_FEATURE_FILES_MAX 16 /* files of features: one for each drive of a machine */

/* Vertices of one type have consecutive ids. Each type has separate features. */
struct pst_vertex_type {
    char name[PST_NAME_MAX]; /* "paper" */
    int64_t first, vertices; /* ids first to first + vertices - 1 */
    int64_t feature_dim;     /* 0: no features */
    uint64_t stride_bytes;
    struct pst_array
        features; /* (vertices, stride), mapped as all features are; path empty if there are none */
};

struct pst_edge_type {
    char name[PST_NAME_MAX]; /* "author:writes:paper" */
    int source, target;      /* types of vertices */
};

#define PST_DATASET_SPLITS_MAX 128 /* published sets have up to 20 */
#define PST_DATASET_PARTS_MAX 16   /* as many as a run has ranks */
#define PST_DATASET_PARTS_FILE "parts.json"

/* One of several splits. */
struct pst_dataset_split {
    char name[PST_NAME_MAX]; /* "geom/3" */
    struct pst_array ids[3]; /* like split[] of pst_dataset; all empty while this split is the chosen one */
};

/* A dataset can be cut into parts (common/store/parted), one for each machine of a run. A part has all labels
 * and splits, but only its own vertices' feature rows, and, if lists are cut, lists of neighbours. indptr is
 * whole in any case. */
struct pst_dataset_cut {
    int part, parts;                          /* parts 0: this is a whole dataset */
    int64_t first[PST_DATASET_PARTS_MAX + 1]; /* part k has rows of vertices first[k] to first[k + 1] - 1 */
    bool lists;                               /* part k has edges first_edge[k] to first_edge[k + 1] - 1 */
    int64_t first_edge[PST_DATASET_PARTS_MAX + 1]; /* all 0 unless lists */
};

struct pst_dataset {
    char dir[4096];
    char name[PST_NAME_MAX];
    int64_t vertices, edges;
    int64_t feature_dim;       /* columns that are data; 0: no features */
    uint64_t stride_bytes;     /* from one feature row to the next */
    int64_t classes;           /* 0: no labels */
    struct pst_array indptr;   /* int64 (vertices + 1) */
    struct pst_array indices;  /* int32 or int64 (edges); of a part with lists: its edges */
    struct pst_array features; /* (vertices, stride); path empty if there are none. For stripes: all stripes
                                  as one array, whose path is not a file */
    int stripes;               /* 0: features is one file */
    struct pst_array *stripe;  /* row v is row v / stripes of stripe[v % stripes]: see rows.h */
    struct pst_array labels;   /* int32 (vertices), -1 none; path empty if there are none */
    struct pst_array
        split[3]; /* int64 ids: train, val, test, of the chosen split; path empty if there are none */
    int splits;   /* number of named splits; 0: there is at most one split, without a name */
    struct pst_dataset_split *named_split;
    int chosen;                     /* the index of the named split that split[] has */
    int64_t relations;              /* number of edge types; 0: edges have no types */
    struct pst_array edge_relation; /* int32 (edges): the relation of each entry of indices; or path empty */
    struct pst_array triples[3]; /* head, relation, tail of ids' dtype (n, 3): train, val, test; or empty */
    struct pst_array ids;        /* int64 (vertices): each vertex's id in the source; or path empty */
    struct pst_array names_at, names; /* UTF-8 names: bytes names_at[v] to names_at[v + 1] of names */
    struct pst_array relation_names_at, relation_names; /* the same for relations */
    struct pst_array edges_split[3]; /* source, target (n, 2), ids' dtype: edges to predict; or path empty */
    struct pst_array negatives[2];   /* for val and test: pairs that are not edges; as many for each edge */
    struct pst_array multilabels;    /* uint8 (vertices, tasks): 0, 1 or 255 (unknown); or path empty */
    struct pst_array targets; /* float32 (vertices) or (vertices, columns): NaN: not known; or path empty */
    struct pst_array edge_weights; /* float32 (edges): of each entry of indices, at least 0; or path empty */
    struct pst_array edge_times;   /* int32 (edges): of each entry of indices, at least 0; or path empty */
    struct pst_array vertex_times; /* int32 (vertices), at least 0; or path empty */
    struct pst_array
        old_ids;      /* int64 (vertices): each vertex's id before `penstock reorder`; or path empty */
    int vertex_types; /* 0: all vertices are of one type, and so are all edges */
    struct pst_vertex_type *vertex_type;
    int edge_types; /* equal to relations; edge_relation has the type of each edge */
    struct pst_edge_type *edge_type;
    struct pst_dataset_cut cut;
    char digest[17]; /* hex XXH3-64 of dataset.json: identifies plans and checkpoints. Of a part: that of the
                        whole dataset */
};
enum { PST_TRAIN, PST_VAL, PST_TEST };

/* Opens and checks dataset.json and every header, but not the data (pst_dataset_verify does). Maps all arrays
 * except features. The error text lists all problems, one per line. */
PST_API PST_MUST_USE pst_rc pst_dataset_open(struct pst_dataset *ds, const char *dir);
/* The same, but it also opens a part of a cut dataset, which pst_dataset_open refuses (PST_E_UNSUPPORTED).
 * The rows of ds->features, and maybe those of ds->indices, are then those of the part: see cut. */
PST_API PST_MUST_USE pst_rc pst_dataset_open_part(struct pst_dataset *ds, const char *dir);
PST_API void pst_dataset_close(struct pst_dataset *ds);

/* Chooses a split from the text of a stage's parameter `split`: a part of the first split ("train", "val" or
 * "test"), a named split ("geom/3": its train part), or a part of a named split ("geom/3:val"). split[] gets
 * the arrays of that split. *part, which may be NULL, gets PST_TRAIN, PST_VAL or PST_TEST. PST_E_ARG: there
 * is no such split; the message lists the existing ones. No other thread may use the dataset during the call.
 */
PST_API PST_MUST_USE pst_rc pst_dataset_choose_split(struct pst_dataset *ds, const char *text, int *part);
PST_API const char *pst_dataset_part_name(int part); /* "train" */

/* The edges of a part that embeddings are trained or tested on: triples (n, 3), or else pairs (n, 2), of
 * which the first column is the source and the last one the destination. *relations, which may be NULL, gets
 * the number of relations; pairs have one. PST_E_ARG: there are none. */
PST_API PST_MUST_USE pst_rc pst_dataset_edges(const struct pst_dataset *ds, int part,
                                              const struct pst_array **edges, int64_t *relations);

/* For each relation (edge type), the index among n names of the one that means it: chosen[0..relations]. A
 * name is a whole one ("author:writes:paper"), or the middle of one ("writes") if no other type has it; for a
 * dataset without types of vertices, the name or else the number of a relation. "*" means all relations that
 * no other name means. PST_E_ARG: a name, of index *wrong, means no relation or several, or two names mean
 * one; or (*wrong is n) a relation has no name. The message lists the names that there are. */
PST_API PST_MUST_USE pst_rc pst_edge_type_match(const struct pst_dataset *ds, const char *const *name,
                                                size_t n, int32_t *chosen, size_t *wrong);

/* Checks the arrays whose size is proportional to the vertices: indptr is monotone, labels are in range,
 * splits are in range and disjoint. It does not read edges or features. The error text lists all problems. */
PST_API PST_MUST_USE pst_rc pst_dataset_check(const struct pst_dataset *ds);

/* Reads all files and checks them: checksums, monotone indptr, ids in range, finite features, labels, splits.
 */
PST_API PST_MUST_USE pst_rc pst_dataset_verify(const char *dir, bool progress);

PST_END_DECLS
#endif

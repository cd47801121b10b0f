/* store.h: a dataset on disk: a directory with dataset.json and .npy arrays whose data begins at byte
 * 4096 (PST_PAGE), so that NumPy maps them and O_DIRECT and NVMe read them as they are.
 * Owner: pst_dataset_open fills what the caller owns; pst_dataset_close releases it. Threads: an open
 * dataset is read-only and may be shared. */
#ifndef PST_STORE_H
#define PST_STORE_H

#include "common/base.h"
#include "common/util/dtype.h"

PST_BEGIN_DECLS

/* One array file, not necessarily mapped. */
struct pst_array {
    char path[4096];
    enum pst_dtype dtype;
    int rank;         /* 1 or 2 */
    int64_t shape[2]; /* as stored: rows, and columns including padding (1 when rank is 1) */
    bool fortran;     /* columns one after the other: only after pst_array_open_edges */
    uint64_t data_at; /* byte where data begins */
    uint64_t data_bytes;
    const void *map; /* of the data; NULL until pst_array_map */
    void *map_base;
    size_t map_bytes;
};

/* Reads and checks the .npy header (versions 1 to 3, C order, little endian) against the file's size. */
PST_API PST_MUST_USE pst_rc pst_array_open(struct pst_array *array, const char *path);
/* The same, for (2, E) and (E, 2): columns may come one after the other, as in numpy.save(edges.T). */
PST_API PST_MUST_USE pst_rc pst_array_open_edges(struct pst_array *array, const char *path);
/* A file of numbers without a header, which must be as large as its shape says. */
PST_API PST_MUST_USE pst_rc pst_array_open_raw(struct pst_array *array, const char *path,
                                               enum pst_dtype dtype, int rank, const int64_t shape[2]);
PST_API PST_MUST_USE pst_rc pst_array_map(struct pst_array *array); /* read-only, shared */
PST_API void pst_array_close(struct pst_array *array);

#define PST_DATASET_FEATURE_FILES_MAX 16 /* that features lie in: drives of one machine */

/* Vertices of one type have consecutive ids; each type has features of its own. */
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

/* One of several splits. */
struct pst_dataset_split {
    char name[PST_NAME_MAX]; /* "geom/3" */
    struct pst_array ids[3]; /* as pst_dataset's split; all empty while this split is the chosen one */
};

struct pst_dataset {
    char dir[4096];
    char name[PST_NAME_MAX];
    int64_t vertices, edges;
    int64_t feature_dim;       /* columns that are data; 0: no features */
    uint64_t stride_bytes;     /* from one feature row to the next */
    int64_t classes;           /* 0: no labels */
    struct pst_array indptr;   /* int64 (vertices + 1) */
    struct pst_array indices;  /* int32 or int64 (edges) */
    struct pst_array features; /* (vertices, stride); path empty if there are none. In stripes: what they
                                  make together; path is the name of no file */
    int stripes;               /* 0: features is one file */
    struct pst_array *stripe;  /* row v is row v / stripes of stripe[v % stripes]: see rows.h */
    struct pst_array labels;   /* int32 (vertices), -1 none; path empty if there are none */
    struct pst_array
        split[3]; /* int64 ids: train, val, test, of the chosen split; path empty if there are none */
    int splits;   /* that have names; 0: there is at most one split, without a name */
    struct pst_dataset_split *named_split;
    int chosen;                     /* which of them split[] is */
    int64_t relations;              /* types of edges; 0: they have none */
    struct pst_array edge_relation; /* int32 (edges): the relation of each entry of indices; or path empty */
    struct pst_array triples[3]; /* head, relation, tail of ids' dtype (n, 3): train, val, test; or empty */
    struct pst_array ids;        /* int64 (vertices): what the source called each; or path empty */
    struct pst_array names_at, names; /* or its name: bytes names_at[v] to names_at[v + 1] of names; UTF-8 */
    struct pst_array relation_names_at, relation_names; /* the same of relations */
    struct pst_array edges_split[3]; /* source, target (n, 2), ids' dtype: edges to predict; or path empty */
    struct pst_array negatives[2];   /* of val and test: pairs that are no edges; as many for each edge */
    struct pst_array multilabels;    /* uint8 (vertices, tasks): 0, 1 or 255 (not known); or path empty */
    int vertex_types;                /* 0: all vertices are of one type, and so are all edges */
    struct pst_vertex_type *vertex_type;
    int edge_types; /* as many as relations: edge_relation says which */
    struct pst_edge_type *edge_type;
    char digest[17]; /* hex XXH3-64 of dataset.json: identifies plans and checkpoints */
};
enum { PST_TRAIN, PST_VAL, PST_TEST };

/* Opens and checks dataset.json and every header (not the data: that is pst_dataset_verify). Maps all
 * but features. All problems are told at once in the error text, one per line. */
PST_API PST_MUST_USE pst_rc pst_dataset_open(struct pst_dataset *ds, const char *dir);
PST_API void pst_dataset_close(struct pst_dataset *ds);

/* Chooses what a stage's parameter `split` says: a part of the first split ("train", "val" or "test"), a
 * named split ("geom/3": its train part), or a part of one ("geom/3:val"). split[] becomes that split's;
 * *part, which may be NULL, becomes PST_TRAIN, PST_VAL or PST_TEST. Fails: PST_E_ARG, naming the splits that
 * there are. Not while another thread uses the dataset. */
PST_API PST_MUST_USE pst_rc pst_dataset_choose_split(struct pst_dataset *ds, const char *text, int *part);
PST_API const char *pst_dataset_part_name(int part); /* "train" */

/* Reads what is proportional to the vertices, not to edges or features: an indptr that falls, labels out of
 * range, splits out of range or overlapping. All problems are in the error text, as above. */
PST_API PST_MUST_USE pst_rc pst_dataset_check(const struct pst_dataset *ds);

/* Reads everything: checksums, monotone indptr, ids in range, finite features, labels, splits. */
PST_API PST_MUST_USE pst_rc pst_dataset_verify(const char *dir, bool progress);

PST_END_DECLS
#endif

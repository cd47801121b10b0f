/* import.h: makes a dataset from NumPy arrays: edges, features (dense or CSR), labels, splits.
 * Owner: the caller owns the spec and the result; plain memory, nothing to release. Threads: one. */
#ifndef PST_IMPORT_H
#define PST_IMPORT_H

#include "common/store/build/csc_builder.h"
#include "common/store/tables/tables.h"

PST_BEGIN_DECLS

enum pst_import_source_id {
    PST_IMPORT_EDGES, /* (2, E) or (E, 2), int32 or int64; the first is the source, the second the target */
    PST_IMPORT_EDGE_WEIGHTS, /* (E) numbers of 0 or more, one for each edge of the array of edges */
    PST_IMPORT_EDGE_TIMES,   /* (E) integers of 0 or more that fit int32, likewise */
    PST_IMPORT_FEATURES,     /* (N, D) float32, float64 (made float32), float16 or bfloat16 */
    PST_IMPORT_FEAT_INDPTR,  /* or CSR: (N + 1) int32 or int64, */
    PST_IMPORT_FEAT_INDICES, /* (nnz) int32 or int64, */
    PST_IMPORT_FEAT_DATA,    /* (nnz) float32 or float64; an entry that is there twice is summed */
    PST_IMPORT_LABELS,       /* (N) integers, -1 none; or floats, NaN none */
    PST_IMPORT_TRAIN,        /* ids; or a mask of 0 and 1 (V); or several, (V, k) */
    PST_IMPORT_VAL,
    PST_IMPORT_TEST,
    PST_IMPORT_SOURCES
};

/* Fails with its own message. *vertices: in, -1 or what the arrays say; out, what the edges say where they
 * do. */
typedef pst_rc (*pst_import_feed_fn)(void *ctx, struct pst_csc_builder *csc, int64_t *vertices,
                                     struct pst_progress *progress);

/* EX3: source, relation, target. */
enum pst_import_edge_shape { PST_EDGES_AUTO, PST_EDGES_2XE, PST_EDGES_EX2, PST_EDGES_EX3 };
enum pst_import_normalize { PST_IMPORT_NORMALIZE_NONE, PST_IMPORT_NORMALIZE_L1, PST_IMPORT_NORMALIZE_L2 };

/* What a file of numbers without a header holds; rank 0: it has NumPy's header. */
struct pst_raw {
    enum pst_dtype dtype;
    int rank;
    int64_t shape[2];
};

/* One of several splits: files of ids or masks. "": the split lacks this part. */
struct pst_import_split_source {
    char name[PST_NAME_MAX];
    char source[3][PST_PATH_MAX]; /* train, val, test */
    char told_as[3][PST_PATH_MAX];
};

struct pst_import_spec {
    char name[PST_NAME_MAX];
    char source[PST_IMPORT_SOURCES][4096]; /* "": there is none */
    struct pst_raw raw[PST_IMPORT_SOURCES];
    char told_as[PST_IMPORT_SOURCES][4096]; /* its name in messages, where that is another; "": its path */
    int64_t vertices, classes, feature_dim; /* -1: from the arrays */
    /* Splits beside that of source[PST_IMPORT_TRAIN..TEST], which comes first and is called split_name, if it
     * is there. */
    const struct pst_import_split_source *named_split;
    int named_splits;
    char split_name[PST_NAME_MAX];
    char only_split[PST_NAME_MAX]; /* import this one of them, or this family; "": all */
    enum pst_import_edge_shape edge_shape;
    const char *shape_by;                  /* whose files have it, for messages; NULL: the user said so */
    int64_t target_first, target_vertices; /* those that labels and splits speak of; -1: all */
    bool symmetrize, dedupe;
    enum pst_csc_builder_self_loops self_loops;
    double loop_weight; /* of loops that are added, if edges have weights; -1: the user did not say */
    enum pst_import_normalize
        normalize;         /* each feature row by the sum of its magnitudes, or its length; 0 stays 0 */
    uint64_t stride_bytes; /* 0: pst_stride_for */
    /* Labels, features and splits may be text tables (tables.h): which columns they have; what features
     * become (float32, float16 or bfloat16); and what their vertices are called. numbering's vertices is
     * filled in once the edges are read; NULL: vertices are numbers. */
    struct pst_tables_columns columns;
    enum pst_dtype table_dtype;
    const struct pst_numbering_spec *numbering;
    bool link; /* features stay where they are: a symbolic link */
    bool transpose;
    uint64_t memory_bytes; /* for the topology */
    int threads;
    /* Edges from something else than an array: gives all of them to the topology. vertices is -1 or what
     * arrays say. */
    pst_import_feed_fn feed;
    void *feed_ctx;
    bool feed_resumes;   /* it calls pst_csc_builder_checkpoint, and goes on from the state that it gave, */
    bool feed_replays;   /* and adds again what is lost (pst_csc_builder_spec's replays) */
    int64_t relations;   /* that edges have, by the feed; 0: none */
    bool weights;        /* edges have weights, by the feed */
    const char *command; /* for the manifest's provenance; NULL: none */
};

/* Begins all zero. */
struct pst_import_result {
    struct pst_problems warnings; /* what is odd but not wrong */
    struct pst_csc_builder_counts counts;
};

PST_API void pst_import_defaults(struct pst_import_spec *spec);

/* Fills what is still empty from a directory's usual names (edges.npy, feat.npy or features.npy,
 * feat_indptr.npy, ..., labels.npy, train_idx.npy, ...) and from meta.json's name, num_nodes, num_features
 * and num_classes where it has them. skip[i] true leaves source i out. */
PST_API PST_MUST_USE pst_rc pst_import_find(struct pst_import_spec *spec, const char *dir,
                                            const bool skip[PST_IMPORT_SOURCES]);

/* An edge (source, target) makes source an in-neighbour of target. Everything is checked first, and every
 * problem told (PST_E_FORMAT); feature values are checked as they stream. */
PST_API PST_MUST_USE pst_rc pst_import(const struct pst_import_spec *spec, struct pst_build *b,
                                       struct pst_import_result *result, struct pst_progress *progress);

PST_END_DECLS
#endif

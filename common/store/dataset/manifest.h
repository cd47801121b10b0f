/* manifest.h: dataset.json as a struct: the arrays, and where the data came from.
 * Owner: the caller; init or read, then release. Threads: one. */
#ifndef PST_MANIFEST_H
#define PST_MANIFEST_H

#include <jansson.h>

#include "common/util/problems.h"
#include "common/store/array_id.h"
#include "common/store/store.h"

PST_BEGIN_DECLS

#define PST_MANIFEST_FILE "dataset.json"
/* 2: relations, triples, id maps; 3: types of vertices and edges, edges to predict, several labels a vertex.
 * 4: features that are a link to their source; 5: features in stripes; 6: several splits; 7: weights of
 * edges; 8: targets; 9: times of edges and vertices; 10: old ids; 11: a part of a cut dataset. A writer uses
 * the lowest version that has all of the contents. */
#define PST_MANIFEST_VERSION 11
#define PST_MANIFEST_VERTEX_TYPES_MAX 64         /* the largest graphs of this field have 6 */
#define PST_MANIFEST_EDGE_TYPES_MAX 1024         /* and 51; more are relations of a knowledge graph */
#define PST_MANIFEST_BYTES_MAX (1 << 20)         /* ours are 2 KiB; a long provenance fits */
#define PST_MANIFEST_CLASSES_MAX (1 << 20)       /* labels are int32, and a trainer's output is as wide */
#define PST_MANIFEST_TARGETS_MAX (1 << 20)       /* numbers of a vertex, for the same reason */
#define PST_MANIFEST_ID32_VERTICES_MAX INT32_MAX /* past this ids are int64 */

struct pst_array_entry {
    bool present;
    char file[PST_NAME_MAX];
    enum pst_dtype dtype;
    int rank;
    int64_t shape[2];
    uint64_t checksum; /* XXH3-64 of the whole file */
    uint64_t head; /* of a stripe: XXH3-64 of its first PST_STRIPE_HEAD bytes, or fewer: is it this one? */
    /* A symbolic link to a file that is not ours: its size and when it was modified. linked_ns 0: no link. */
    int64_t linked_bytes, linked_ns;
};

struct pst_manifest_vertex_type {
    char name[PST_NAME_MAX];
    int64_t vertices, feature_dim;
    uint64_t stride_bytes;
    struct pst_array_entry features;
};

struct pst_manifest_split {
    char name[PST_NAME_MAX];
    struct pst_array_entry ids[3]; /* train, val, test; not of the first split, whose arrays are in `array` */
};

struct pst_manifest {
    char name[PST_NAME_MAX];
    int64_t vertices, edges, feature_dim, classes;
    int64_t relations; /* types of edges; 0: they have none */
    uint64_t stride_bytes;
    struct pst_array_entry array[PST_ARRAY_COUNT];
    int stripes;                    /* 0: features are one file */
    struct pst_array_entry *stripe; /* owned; array[PST_ARRAY_FEATURES] is then what they make together */
    int vertex_types;               /* 0: one type */
    struct pst_manifest_vertex_type *vertex_type; /* owned, as edge_type is */
    int edge_types;
    struct pst_edge_type *edge_type;
    int splits;                       /* that have names; 0: at most one, without a name */
    struct pst_manifest_split *split; /* owned */
    struct pst_dataset_cut cut;       /* parts 0: a whole dataset */
    uint64_t whole;                   /* of a part: the digest of the dataset that was cut */
    json_t *provenance;               /* an object; owned; may be NULL */
    uint64_t digest;                  /* XXH3-64 of the file, after read or write */
};

PST_API const char *pst_array_id_name(enum pst_array_id id); /* "indptr" */
PST_API enum pst_dtype pst_manifest_id_dtype(int64_t vertices);
/* Room for stripes: all zero. Fails: PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_manifest_stripes(struct pst_manifest *m, int stripes);
/* Room for types: all zero. Fails: PST_E_LIMIT, PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_manifest_types(struct pst_manifest *m, int vertex_types, int edge_types);
/* Room for named splits: all zero. Fails: PST_E_LIMIT, PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_manifest_splits(struct pst_manifest *m, int splits);
PST_API struct pst_array *pst_manifest_dataset_array(struct pst_dataset *ds, enum pst_array_id id);

/* Reads and checks dir/dataset.json; every problem goes to the list. With problems the struct may be
 * half filled: only release it. */
PST_API void pst_manifest_read(struct pst_manifest *m, const char *dir, struct pst_problems *problems);

/* Writes dir/dataset.json (which must not exist) and syncs it. Equal contents give equal bytes. */
PST_API PST_MUST_USE pst_rc pst_manifest_write(struct pst_manifest *m, const char *dir);
/* Checks which arrays must be there, their dtypes and shapes; every problem goes to the list. */
PST_API void pst_manifest_check(const struct pst_manifest *m, struct pst_problems *problems);
PST_API void pst_manifest_release(struct pst_manifest *m);

PST_END_DECLS
#endif

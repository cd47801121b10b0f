/* importing.h: the state of one import, shared by its files. Owner: import.c. Threads: one. */
#ifndef PST_IMPORTING_H
#define PST_IMPORTING_H

#include "common/store/build/csc_builder.h"
#include "common/store/import/import.h"

#define PST_IMPORT_TOLD_MAX 5 /* bad values of one array that are told one by one; the rest are counted */

/* Part of a split: ids, or a column of a mask. a NULL: the split lacks this part. */
struct pst_import_part {
    const struct pst_array *a;
    int64_t column;
    bool mask;
};

struct pst_import_split {
    char name[PST_NAME_MAX]; /* "": the only one */
    struct pst_import_part part[3];
};

struct pst_import_state {
    const struct pst_import_spec *spec; /* own, which read_tables.c changes */
    struct pst_import_spec own;
    struct pst_import_split_source *own_split; /* the named splits, if some were tables */
    struct pst_import_more {
        struct pst_array part[3];
    } * more;                        /* of spec's named splits */
    struct pst_import_split *splits; /* after pst_import_check_splits: room for PST_DATASET_SPLITS_MAX */
    int n_splits;
    struct pst_array src[PST_IMPORT_SOURCES]; /* mapped where path is not empty */
    struct pst_problems problems;
    struct pst_problems *warnings;
    int64_t vertices, edges, classes, feature_dim;
    enum pst_import_edge_shape shape; /* of the array of edges */
    int64_t relations;                /* 0: edges have none */
    int32_t *labels;                  /* vertices, or NULL */
};

static inline bool pst_import_has(const struct pst_import_state *im, enum pst_import_source_id id)
{
    return im->src[id].map != NULL;
}

#define PST_IMPORT_INTEGERS "integers (int8 to int64, uint8 to uint32)" /* what messages ask for */

/* Entry i of an array of integers or of bool. */
static inline int64_t pst_import_int_at(const struct pst_array *a, int64_t i)
{
    return pst_dtype_int_at(a->map, a->dtype, i);
}

/* Entry i of an array of any type of numbers. */
double pst_import_number_at(const struct pst_array *a, int64_t i);

/* How many vertices labels and splits speak of, and the first of them. */
int64_t pst_import_target(const struct pst_import_state *im, int64_t *first);

/* by: whose edges have the shape that was asked for; NULL: the user asked. */
void pst_import_wrong_shape(struct pst_problems *problems, const struct pst_array *a,
                            enum pst_import_edge_shape asked, const char *by);

const char *pst_import_source_option(enum pst_import_source_id id); /* "--edges" */

/* dir's meta.json; *meta NULL: there is none. The caller's to release. Fails: PST_E_FORMAT with the line. */
PST_MUST_USE pst_rc pst_import_meta(const char *dir, json_t **meta);
/* The name and counts that meta.json (which may be NULL) says, where spec has none. */
PST_MUST_USE pst_rc pst_import_read_meta(struct pst_import_spec *spec, const char *dir, const json_t *meta);

/* read_tables.c: makes arrays of the sources that are tables, once vertices are known. */
bool pst_import_has_tables(const struct pst_import_spec *s);
PST_MUST_USE pst_rc pst_import_read_tables(struct pst_import_state *im, struct pst_build *b,
                                           struct pst_progress *progress);

/* find_splits.c: the file of a part (0 to 2: train, val, test) under one of its usual names, with one of the
 * endings (a list that ends with NULL); "": there is none. */
PST_MUST_USE pst_rc pst_import_find_part(const char *dir, int part, const char *const *endings,
                                         char out[PST_PATH_MAX]);
/* Fills in spec's splits from the folders of dir/splits, or as meta.json lists them (meta may be NULL). *out
 * is the caller's to free, after the import. */
PST_MUST_USE pst_rc pst_import_find_splits(const char *dir, const json_t *meta, const char *const *endings,
                                           struct pst_import_spec *spec,
                                           struct pst_import_split_source **out);

/* check.c: opens, agrees on the counts, and looks at every id and label; problems go to the list. */
void pst_import_open(struct pst_import_state *im);
void pst_import_counts(struct pst_import_state *im);
void pst_import_check_csr(struct pst_import_state *im);
PST_MUST_USE pst_rc pst_import_read_labels(struct pst_import_state *im);

/* Opens and maps one array as a source of this kind must be; messages call it told. */
void pst_import_open_array(struct pst_import_state *im, enum pst_import_source_id id, const char *path,
                           const char *told, struct pst_array *a);

/* splits.c: opens the named ones; says which there are and checks them, once the vertices are known; writes
 * them. */
void pst_import_open_splits(struct pst_import_state *im);
void pst_import_check_splits(struct pst_import_state *im);
PST_MUST_USE pst_rc pst_import_write_splits(const struct pst_import_state *im, struct pst_build *b);
void pst_import_close_splits(struct pst_import_state *im);

/* Entry i of an array of labels: integers, or floats where NaN is -1; INT64_MIN: it is no integer. */
int64_t pst_import_label_at(const struct pst_array *a, int64_t i);

/* Tells the first few bad values of one array, and then how many more. */
void pst_import_tell(struct pst_problems *problems, int64_t *bad, const char *path, int64_t at, int64_t value,
                     int64_t limit, const char *what);
void pst_import_tell_rest(struct pst_problems *problems, int64_t bad, const char *path);

/* edges.c: an array of edges, checked and given on in blocks, in one reading. */
struct pst_import_edge_array {
    const struct pst_array *a;        /* int32 or int64, open; its path is what messages say */
    const char *file;                 /* where it is */
    enum pst_import_edge_shape shape; /* of the bytes, not AUTO */
    int64_t edges;
    int64_t begin;     /* the first that is read */
    int64_t first[2];  /* added to each source, each target */
    int64_t limit[2];  /* which must be below this before; -1: any */
    int32_t relation;  /* of all, unless the array has a column of them */
    int64_t relations; /* how many there are; 0: edges have none */
    const struct pst_array *weights,
        *times; /* mapped, one for each edge; NULL: edges have none. One of these, or relations */
};

/* n <= PST_CSC_BUILDER_EDGE_BLOCK; tag: relations, weights as pst_csc_builder_weight makes them, or times;
 * NULL if edges have none of them. */
typedef pst_rc (*pst_import_edge_block_fn)(void *ctx, const int64_t *source, const int64_t *target,
                                           const int32_t *tag, int64_t n);

/* Ids, weights and times out of range go to the list of problems, and nothing more is given on. */
PST_MUST_USE pst_rc pst_import_edge_array_read(const struct pst_import_edge_array *e,
                                               pst_import_edge_block_fn fn, void *ctx,
                                               struct pst_problems *problems, struct pst_progress *progress);

/* A pst_import_edge_block_fn of a struct pst_csc_builder. */
PST_MUST_USE pst_rc pst_edges_to_csc(void *csc, const int64_t *source, const int64_t *target,
                                     const int32_t *tag, int64_t n);

/* Of an array with a column of relations: one more than the largest. */
PST_MUST_USE pst_rc pst_import_count_relations(struct pst_import_state *im, struct pst_progress *progress);

/* The edges of an import's array to the topology. */
PST_MUST_USE pst_rc pst_import_feed(struct pst_import_state *im, struct pst_csc_builder *csc,
                                    struct pst_progress *progress);

/* features.c: streams rows, checks every value, writes; type: of vertices, -1: all. */
PST_MUST_USE pst_rc pst_import_features(const struct pst_import_state *im, struct pst_build *b, int type,
                                        struct pst_progress *progress);

#endif

/* tables.h: makes array files of labels, features, splits and edges from text tables.
 * Owner: none. Threads: one. */
#ifndef PST_TABLES_H
#define PST_TABLES_H

#include "common/store/tables/numbering.h"
#include "common/util/problems.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

/* Names of columns that the user gave; "": the usual ones. */
struct pst_tables_columns {
    char vertex[PST_NAME_MAX];   /* usual: vertex, id, node, node_id */
    char label[PST_NAME_MAX];    /* usual: label, class, y */
    char split[PST_NAME_MAX];    /* usual: split, set */
    char features[PST_PATH_MAX]; /* with commas between; "": every column that is none of the others */
};

struct pst_tables_spec {
    struct pst_numbering *numbering;
    const struct pst_tables_columns *columns;
    enum pst_table_header header;
    const char *path; /* the table */
    const char *to;   /* the array, which must not exist */
    const char *temp; /* a path that is free */
    struct pst_problems *warnings;
    struct pst_progress *progress; /* NULL: silent */
};

/* int32 (vertices): -1 where the table has no row for a vertex, or an empty field. */
PST_MUST_USE pst_rc pst_tables_labels(const struct pst_tables_spec *spec);

/* float32, float16 or bfloat16 (vertices, columns): every vertex must have one row. */
PST_MUST_USE pst_rc pst_tables_features(const struct pst_tables_spec *spec, enum pst_dtype dtype);

/* uint8 (vertices, columns): 0, 1, or 255 where a field is empty. */
PST_MUST_USE pst_rc pst_tables_multilabels(const struct pst_tables_spec *spec);

/* float32 (vertices, columns): NaN where a field is empty. */
PST_MUST_USE pst_rc pst_tables_targets(const struct pst_tables_spec *spec);

/* int64 ids of one part (0 to 2: train, val, test), in the table's order: all of its vertices; those whose
 * column `split` names the part; or those whose column train (val, test) is true. */
PST_MUST_USE pst_rc pst_tables_split(const struct pst_tables_spec *spec, int part);

/* How a list of edges is written: (n, 2) of source, target; or (n, 3) of source, relation, target. */
struct pst_tables_edges {
    enum pst_dtype dtype;      /* int32 or int64 */
    struct pst_dict *relation; /* names of relations; NULL: they are numbers */
    int64_t relations;         /* how many there are, if they are numbers; -1: any */
    bool three;                /* out: the table has relations */
};
PST_MUST_USE pst_rc pst_tables_edges(const struct pst_tables_spec *spec, struct pst_tables_edges *edges);

/* One column of names, or of integers, in the table's order: names_at and names; or int64 ids. Whether it
 * holds integers alone is for the caller to know. rows: how many. */
PST_MUST_USE pst_rc pst_tables_names(const char *path, const char *at_to, const char *names_to,
                                     int64_t *rows);
PST_MUST_USE pst_rc pst_tables_ids(const char *path, const char *to, int64_t *rows);

PST_END_DECLS
#endif

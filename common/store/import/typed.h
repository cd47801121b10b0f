/* typed.h: imports a graph of several types of vertices and edges with files for each type, as IGB, MAG240M
 * and GraphBolt have. Owner: the caller; init and release pair. Threads: one. */
#ifndef PST_TYPED_H
#define PST_TYPED_H

#include "common/store/import/job.h"

struct pst_typed_vertices {
    char name[PST_NAME_MAX];
    int64_t vertices;      /* -1: the rows of its features, or as many as its edges name */
    char features[4096];   /* "": there are none */
    char told_as[4096];    /* its name in messages; "": its path */
    uint64_t stride_bytes; /* 0: as the user says, or the usual */
    struct pst_raw raw;
};

struct pst_typed_edges {
    char name[PST_NAME_MAX]; /* "author:writes:paper" */
    int source, target;
    char path[4096], told_as[4096]; /* told_as "": path */
    bool csv;                       /* lines of source, target; else an array */
    bool counted;                   /* csv: there must be this many: */
    int64_t edges;
    bool tall; /* made of such lines: (E, 2) whatever the format's shape */
};

struct pst_typed {
    struct pst_import_job *job;       /* whose labels and splits speak of vertices of the type `labelled` */
    enum pst_import_edge_shape shape; /* of all edges, unless the user says otherwise */
    const char *format;               /* "IGB" */
    const char *types_otherwise;      /* what --types is unless the user says: a name, or "all" */
    bool keep;                        /* one type of vertices and of edges stays a type */
    int labelled;
    int vertex_types, edge_types;
    struct pst_typed_vertices *vertex;
    struct pst_typed_edges *edge;
};

PST_MUST_USE pst_rc pst_typed_init(struct pst_typed *t, struct pst_import_job *job);
void pst_typed_release(struct pst_typed *t);

/* The type of that name, added where it is new. Fails: PST_E_LIMIT. */
PST_MUST_USE pst_rc pst_typed_vertex(struct pst_typed *t, const char *name, int *type);

/* The ends are added where they are new; path is copied. */
PST_MUST_USE pst_rc pst_typed_edge(struct pst_typed *t, const char *source, const char *relation,
                                   const char *target, const char *path);

/* Every directory dir/SOURCE<separator>RELATION<separator>TARGET that has an edge_index.npy, by name. */
PST_MUST_USE pst_rc pst_typed_find(struct pst_typed *t, const char *dir, const char *separator);

/* Leaves out what --types does not name, and tells it. */
PST_MUST_USE pst_rc pst_typed_select(struct pst_typed *t);

/* True after pst_typed_select: one type of vertices and of edges, which need no names. */
bool pst_typed_is_plain(const struct pst_typed *t);

/* Looks at everything and imports: one plain graph, or one of types, whose ids follow each other in the order
 * of the types. labelled -1: labels and splits, if there are some, speak of all vertices. */
PST_MUST_USE pst_rc pst_typed_import(struct pst_typed *t);

/* Says in *raw what a file of `columns` numbers a row is, where it has no NumPy header. */
PST_MUST_USE pst_rc pst_raw_look(const char *path, enum pst_dtype dtype, int64_t columns,
                                 struct pst_raw *raw);

#endif

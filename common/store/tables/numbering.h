/* numbering.h: finds the number of a vertex in a text table. It is the vertex's id, the rank of its id, or
 * the number of its name. If memory cannot hold all names, the table is read in several passes. Owner: the
 * caller; open and close pair. Threads: one. */
#ifndef PST_NUMBERING_H
#define PST_NUMBERING_H

#include "common/store/build/rank.h"
#include "common/store/names/dict.h"
#include "common/store/text/table.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

enum pst_numbering_kind {
    PST_NUMBERING_IDENTITY, /* ids are numbers */
    PST_NUMBERING_RANK,     /* ids are renumbered by rank */
    PST_NUMBERING_IDS,      /* ids[v] is what vertex v is called, in any order */
    PST_NUMBERING_NAMES     /* names, as the two arrays of a dataset have them */
};

/* Of several types: `type` and a number within it. */
struct pst_numbering_type {
    const char *name;
    int64_t first, vertices;
};

struct pst_numbering_spec {
    enum pst_numbering_kind kind;
    int64_t vertices;
    const struct pst_rank *rank;           /* RANK */
    const char *ids;                       /* IDS: the path of an int64 array */
    const char *names_at, *names;          /* NAMES: the paths of the arrays */
    const struct pst_numbering_type *type; /* NULL: all vertices are of one type */
    int types;
    bool complete; /* a vertex that is not there is an error; else its rows are left out, and counted */
    uint64_t memory_bytes; /* for names */
    const char *list;      /* what lists the vertices, for messages; NULL: the edges do */
};

struct pst_numbering {
    struct pst_numbering_spec spec;
    struct pst_array ids, names_at, names;
    struct pst_dict dict; /* of the vertices from first to end - 1 */
    int64_t first, end;
};

PST_MUST_USE pst_rc pst_numbering_open(struct pst_numbering *n, const struct pst_numbering_spec *spec);
void pst_numbering_close(struct pst_numbering *n);

#define PST_NUMBERED_KEYS_MAX 2 /* columns that hold vertices */

/* A table whose rows speak of vertices. */
struct pst_numbered {
    struct pst_table table;
    struct pst_numbering *numbering;
    const char *temp;                     /* where numbers are put aside, if names do not fit */
    int keys, key[PST_NUMBERED_KEYS_MAX]; /* columns; keys 0: row v is vertex v's */
    int type;                             /* column; -1: none */
    int64_t *number; /* of rows * keys, if they were looked up in passes before; else NULL */
    size_t number_bytes;
    int64_t unknown; /* rows that were left out */
};

/* After pst_table_open, and once key, keys and type are set. progress may be NULL. */
PST_MUST_USE pst_rc pst_numbered_begin(struct pst_numbered *t, struct pst_numbering *n, const char *temp,
                                       struct pst_progress *progress);
/* The next row whose vertices are known; id[0] to id[keys - 1] (id[0]: the row's number, if keys is 0). */
PST_MUST_USE pst_rc pst_numbered_next(struct pst_numbered *t, int64_t id[PST_NUMBERED_KEYS_MAX], bool *more);
void pst_numbered_close(struct pst_numbered *t);

PST_END_DECLS
#endif

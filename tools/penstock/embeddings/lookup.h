/* lookup.h: the embeddings of a run's checkpoint and the names of its dataset, for commands that ask
 * questions about vertices. Embeddings are read by passes over blocks, so that memory does not grow with
 * them.
 *
 * Owner: lookup_open fills what the caller owns; lookup_close releases it. Threads: one. */
#ifndef LOOKUP_H
#define LOOKUP_H

#include "common/store/store.h"
#include "stages/lib/vectors/reader.h"

struct lookup {
    struct pst_vectors_reader reader;
    struct pst_dataset ds;
    char *block; /* one of the reader's */
};

/* last: of the newest checkpoint, not that of the best epoch. dataset: NULL stands for the one that
 * RUN/report.json names. PST_E_ARG: it is not the dataset that the run was trained on, or the report does not
 * name one. */
PST_MUST_USE pst_rc lookup_open(struct lookup *l, const char *run, bool last, const char *dataset);
void lookup_close(struct lookup *l);

/* What a user calls a vertex or a relation: its name in the source, or the source's number where vertices
 * have no names, or else the dataset's number. */
struct lookup_name {
    const char *text; /* no NUL behind it */
    size_t bytes;
};
struct lookup_name lookup_name_of(const char *text);

/* Sets vertex[i] to the vertex that names[i] names, or to -1. One pass over the dataset's names. PST_E_NOMEM.
 */
PST_MUST_USE pst_rc lookup_vertices(const struct lookup *l, const struct lookup_name *names, int64_t n,
                                    int64_t *vertex);
int64_t lookup_relation(const struct lookup *l, struct lookup_name name); /* -1: there is none */
void lookup_print(const struct lookup *l, int64_t vertex);                /* the name, to stdout */

/* Sets rows[i] to the embedding of vertex[i]. One pass. */
PST_MUST_USE pst_rc lookup_rows(struct lookup *l, const int64_t *vertex, int64_t n, float *rows);
/* Calls row(arg, vertex, x) for each vertex, in the order in which blocks have them. */
PST_MUST_USE pst_rc lookup_each(struct lookup *l, void (*row)(void *arg, int64_t vertex, const float *x),
                                void *arg);

/* The best of those that were offered, the best first. Of equal scores the lower vertex is better, so the
 * order in which they are offered changes nothing. NaN is the worst score. */
struct lookup_scored {
    double score;
    int64_t vertex;
};
struct lookup_best {
    int64_t k, n;
    struct lookup_scored *at; /* room for k */
};
#define LOOKUP_BEST_MAX 1000 /* k */
void lookup_offer(struct lookup_best *b, int64_t vertex, double score);

#endif

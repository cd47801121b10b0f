/* parts.h: which partition of the embeddings holds a vertex, and in which row. Partitions are equal: vertex v
 * is row q mod s of partition q div s, where q is a seeded permutation of the ids and s = ceil(vertices /
 * partitions). With the ids in place of a permutation, vertices with neighbouring ids share a partition.
 *
 * Owner: plain memory, no release. Threads: any number may read. */
#ifndef PST_PARTS_H
#define PST_PARTS_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_PARTS_MAX 256
#define PST_PARTS_VERTICES_MAX (INT64_C(1) << 48)
#define PST_PARTS_ROUNDS 6

enum pst_parts_assign { PST_PARTS_RANDOM, PST_PARTS_BY_ID };

struct pst_parts {
    int64_t vertices, rows; /* rows: of a partition; the last ones can have fewer, or none */
    int partitions;
    enum pst_parts_assign assign;
    uint64_t seed;
    int bits[2]; /* of the halves of the permutation's domain */
    uint64_t key[PST_PARTS_ROUNDS];
};

/* seed: of the permutation; BY_ID ignores it. PST_E_ARG: partitions is not 1 to PST_PARTS_MAX, or more than
 * vertices; PST_E_LIMIT: too many vertices. */
PST_API PST_MUST_USE pst_rc pst_parts_init(struct pst_parts *p, int64_t vertices, int partitions,
                                           enum pst_parts_assign assign, uint64_t seed);

/* The place of vertex v, from 0 to vertices - 1: partition x rows + row. A vertex has the same place in every
 * process. */
PST_API int64_t pst_parts_place(const struct pst_parts *p, int64_t v);
/* The same of n vertices, which takes a fraction of the time. */
PST_API void pst_parts_places(const struct pst_parts *p, const int64_t *v, int64_t n, int64_t *places);
/* The vertex at a place. */
PST_API int64_t pst_parts_vertex(const struct pst_parts *p, int64_t place);

static inline int pst_parts_of(const struct pst_parts *p, int64_t v)
{
    return (int)(pst_parts_place(p, v) / p->rows);
}

/* Rows of this partition that have a vertex. */
static inline int64_t pst_parts_used(const struct pst_parts *p, int partition)
{
    const int64_t left = p->vertices - partition * p->rows;
    return left < 0 ? 0 : left < p->rows ? left : p->rows;
}

/* "random" or "id", and back; -1: there is no such name. */
PST_API const char *pst_parts_assign_name(enum pst_parts_assign assign);
PST_API int pst_parts_assign_of(const char *name);

PST_END_DECLS
#endif

/* buckets.h: a dataset's training edges, sorted into P x P buckets: the partition of the source, and that of
 * the destination (Marius, section 4.1). Within a bucket, edges stay in the dataset's order.
 *
 * Buckets are one file in the safetensors format, so other programs can read them. It has two tensors:
 *
 *     bucket_at  int64 [P x P + 1]                 bucket (i, j) is edges bucket_at[i P + j] to bucket_at[i P
 * + j + 1] - 1 edges      int32 or int64 [edges][columns]   head, relation, tail (3 columns), or source,
 * target (2): the dataset's ids
 *
 * __metadata__ has the dataset's digest, the number of vertices and relations, how vertices were assigned to
 * partitions, the seed, and a checksum (common/store/checkpoint.h).
 *
 * Owner: the caller; open and close pair. Threads: any number may read. */
#ifndef PST_BUCKETS_H
#define PST_BUCKETS_H

#include "common/store/store.h"
#include "stages/lib/parts/parts.h"

PST_BEGIN_DECLS

struct pst_progress;

struct pst_buckets {
    struct pst_parts parts;
    char digest[17]; /* of the dataset */
    int64_t edges, relations;
    int columns;          /* 3: with relations; 2: without */
    enum pst_dtype dtype; /* of ids: PST_I32 or PST_I64 */
    const void *edge;     /* mapped */
    const int64_t *at;    /* mapped */
    /* the rest is private */
    void *map;
    uint64_t bytes;
};

/* Sorts a dataset's training edges (triples_train, or edges_train) into the file at path, which is replaced
 * whole or not at all. memory_bytes: for what is on its way to the file. Two passes over the edges, and a
 * copy of the result, for which the disk must have room twice. PST_E_ARG: the dataset has no training edges;
 * PST_E_FORMAT: an id is out of range, and the message says which edge; PST_E_LIMIT: too little memory, and
 * the message says how much is enough; PST_E_IO; PST_E_INTERRUPTED. */
PST_API PST_MUST_USE pst_rc pst_buckets_write(const struct pst_dataset *ds, const struct pst_parts *parts,
                                              const char *path, uint64_t memory_bytes,
                                              struct pst_progress *progress);

/* Counts the training edges of each bucket, without a file: counts[source x P + destination]. Errors as
 * above. */
PST_API PST_MUST_USE pst_rc pst_buckets_count(const struct pst_dataset *ds, const struct pst_parts *parts,
                                              int64_t *counts, struct pst_progress *progress);

/* Reads the file once for its checksum, and maps it. PST_E_FORMAT: the message says what is wrong. */
PST_API PST_MUST_USE pst_rc pst_buckets_open(struct pst_buckets *b, const char *path);
PST_API void pst_buckets_close(struct pst_buckets *b);

/* The first edge of bucket (i, j); ..._end: one past its last edge. */
static inline int64_t pst_buckets_begin(const struct pst_buckets *b, int i, int j)
{
    return b->at[(int64_t)i * b->parts.partitions + j];
}

static inline int64_t pst_buckets_end(const struct pst_buckets *b, int i, int j)
{
    return b->at[(int64_t)i * b->parts.partitions + j + 1];
}

/* A column of an edge; the last column is the destination. */
static inline int64_t pst_buckets_value(const struct pst_buckets *b, int64_t edge, int column)
{
    const int64_t at = edge * b->columns + column;
    return b->dtype == PST_I32 ? ((const int32_t *)b->edge)[at] : ((const int64_t *)b->edge)[at];
}

PST_END_DECLS
#endif

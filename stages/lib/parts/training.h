/* training.h: what the stages that train partitioned embeddings must agree on: the edge buckets, the order in
 * which partitions pass through the buffer, and the batches that follow from both.
 *
 * Owner: open allocates, close frees. Threads: one. */
#ifndef PST_PARTS_TRAINING_H
#define PST_PARTS_TRAINING_H

#include "stages/lib/parts/buckets.h"
#include "stages/lib/parts/epochs.h"

PST_BEGIN_DECLS

/* The choices of a parameter that names an order (pst_order_kind_of). Cover is not among them: it
 * exchanges the whole buffer at a time. */
#define PST_PARTS_ORDERS "beta|hilbert|hilbert-symmetric|legend|auto"
#define PST_PARTS_ORDER_IF "legend if buffer=3" /* what the order needs */

/* Which vertices corrupt the edges of a batch: a sample for each chunk, or every vertex in memory. Every
 * vertex comes once, in one chunk for the whole batch. */
enum pst_parts_negatives { PST_PARTS_SAMPLED, PST_PARTS_ALL };
#define PST_PARTS_NEGATIVES_FROM "sampled|all"

/* *chunks and *negatives (of a chunk and side) are the parameters, and get those of the largest batch. */
PST_API void pst_parts_negatives(enum pst_parts_negatives from, int64_t vertices, int64_t partitions,
                                 int64_t buffer, int64_t *chunks, int64_t *negatives);

struct pst_parts_training {
    struct pst_buckets buckets;
    struct pst_order order;
    int64_t *bucket_edges;
    struct pst_parts_epochs epochs;
    bool between_exchanges; /* nothing is trained during exchanges; set by the caller */
};

/* The file of a run's buckets: RUN/buckets.safetensors. PST_E_LIMIT: the path is too long. */
PST_API PST_MUST_USE pst_rc pst_parts_training_path(const char *run_dir, char path[PST_PATH_MAX]);

/* Opens the buckets at path, builds the order, and lists the batches of every epoch. t->epochs has batch,
 * staleness, epochs and seed, and t->between_exchanges is set. digest, partitions: what the buckets must
 * have. PST_E_ARG: there is no such order, or the buckets are of another dataset or number of partitions; the
 * message says what to do. */
PST_API PST_MUST_USE pst_rc pst_parts_training_open(struct pst_parts_training *t, const char *path,
                                                    const char *digest, int partitions, int buffer,
                                                    enum pst_order_kind kind);
PST_API void pst_parts_training_close(struct pst_parts_training *t);

PST_END_DECLS
#endif

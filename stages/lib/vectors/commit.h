/* commit.h: the checkpoint of embeddings: RUN/checkpoints/NNNNNNNN.safetensors, numbered by the next batch.
 * It has the tensors "vertices", "vertices.state", "relations" and "relations.state" (those that are not
 * empty), the strings that `penstock run --resume` compares, and the strings "model" and "inverse" (0 or 1).
 * A checkpoint of the middle of an epoch has the tensor "epoch", too. If embeddings are partitioned, it has
 * "extents" and "sums" in place of the vertices: where each partition lies in RUN/arrays/embeddings, and its
 * checksum. One file has all of them, so they are always of one moment.
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_VECTORS_COMMIT_H
#define PST_VECTORS_COMMIT_H

#include "common/store/checkpoint.h"
#include "stages/lib/learning/plateau.h"
#include "stages/lib/vectors/exchange.h"
#include "stages/lib/vectors/vectors.h"

/* The string "format" of a checkpoint. A partitioned one also has the strings "vertices", "dim",
 * "partitions", "partition_bytes", "assign", "partition_seed" and "initial", from which a reader computes
 * where each row lies. */
#define PST_COMMIT_FORMAT "embeddings 1"
#define PST_COMMIT_PARTITIONED "partitioned embeddings 1"

enum { PST_COMMIT_FIGURES_MAX = 400 }; /* bytes of the figures of one evaluation */

/* The epoch with the best MRR of the validation edges so far. Its checkpoint stays. */
struct pst_commit_best {
    uint64_t batch; /* the next batch of its checkpoint; UINT64_MAX: no epoch was evaluated */
    uint64_t epoch;
    double mrr;
    char test[PST_COMMIT_FIGURES_MAX]; /* its figures of the test edges: members of a JSON object */
};

/* What a checkpoint has besides the vectors. */
struct pst_commit {
    const char *run_dir, *dataset, *run; /* run: pst_run_identity */
    uint64_t seed, next_batch;
    bool within;      /* an epoch: its figures are kept */
    uint64_t initial; /* the next batch of the checkpoint that gave the initial values; 0: none did */
    int64_t keep;     /* how many of the latest checkpoints stay, besides the best one */
    const struct pst_commit_best *best;
    const struct pst_vectors_table *table; /* NULL: embeddings are not partitioned */
    int partitions;
    const char *model;                        /* a name of pst_embed_model_named */
    bool inverse;                             /* relations have a second embedding, for sources */
    const struct pst_plateau_state *schedule; /* NULL: the rate is constant */
};

/* The tensor "epoch" of a checkpoint of the middle of an epoch: what was trained of it so far. */
enum { PST_COMMIT_EPOCH_FIGURES = 3 }; /* the sum of losses, seconds, edges */
struct pst_tensor pst_commit_epoch_tensor(const double *figures);

/* carrier: the header of the slot that carries the relations; relations: the rows and then the states in it.
 */
PST_API PST_MUST_USE pst_rc pst_commit_save(const struct pst_commit *c, const struct pst_vectors *v,
                                            const struct pst_row_batch *carrier, const pst_real *relations);
/* Fills updates, and rows and state of v, which is open, or the table; the schedule's state, unless it is
 * NULL; and *best. *next_batch is where the run goes on. */
PST_API PST_MUST_USE pst_rc pst_commit_load(const char *path, struct pst_vectors *v,
                                            struct pst_vectors_table *table, int partitions,
                                            struct pst_plateau_state *schedule, struct pst_commit_best *best,
                                            uint64_t *next_batch);
/* Fills the table of the best epoch's checkpoint, if it is in the run's directory. A run that goes on in
 * another directory leaves it in the first one. */
PST_API PST_MUST_USE pst_rc pst_commit_load_best(const char *run_dir, const struct pst_commit_best *best,
                                                 int partitions, struct pst_vectors_table *table);

#endif

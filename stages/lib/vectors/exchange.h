/* exchange.h: embeddings that are larger than memory. Partitions pass through the blocks of vectors.h in the
 * order of stages/lib/order, by way of the disk stage (Marius, section 4; Legend, section 4).
 *
 * Exchange i begins when all batches that use the partition that leaves are home. Their gradients are then
 * added to its rows, though other rows may get them later. It writes that partition,
 * and then loads the next one into its block. Batches of the partitions that stay are trained meanwhile. With
 * `ahead` spare blocks, the partitions of so many exchanges are loaded before others leave. So orders whose
 * exchanges no batch can accompany (BETA) overlap, too. A partition that was never written is generated.
 *
 * The array RUN/arrays/embeddings has two extents for each partition, or three, if the best epoch is kept.
 * One can belong to the last commit, and one to the commit of the best epoch. A partition is written to a
 * free one. So each byte is written once, and a commit is only a table: which extent each partition has, and
 * its checksum. Space for two or three sets of parameters pays for this.
 *
 * A commit within an epoch also writes the partitions in memory. They stay, and the one that leaves next is
 * not written again.
 *
 * Owner: the store. Threads: one. */
#ifndef PST_VECTORS_EXCHANGE_H
#define PST_VECTORS_EXCHANGE_H

#include "stages/lib/parts/training.h"
#include "stages/lib/vectors/mover.h"
#include "stages/lib/vectors/vectors.h"

struct pst_vectors_initial; /* initial.h */

/* Where the last version of each partition is. */
struct pst_vectors_table {
    int64_t extent[PST_PARTS_MAX]; /* from 0 on; -1: never written */
    int64_t sum[PST_PARTS_MAX];    /* XXH3-64 */
};

struct pst_vectors_exchange {
    struct pst_vectors *vectors;
    uint64_t seed; /* of the initial values */
    double scale;
    const struct pst_vectors_initial *initial; /* of partitions that were never written; NULL: generated */
    int partitions, buffer;
    int ahead;     /* partitions that are read into spare blocks before their exchange */
    bool prefetch; /* batches are trained while partitions move */
    pst_rc (*settle)(void *arg, int partition); /* before a partition leaves; NULL: nothing is to be done */
    void *settle_arg;
    struct pst_parts_training training;
    struct pst_vectors_mover mover;
    bool keeps_best;
    struct pst_vectors_table table, committed, best; /* of now, the last commit and the best epoch */
    char path[PST_PATH_MAX];
    int fd;
    bool open;
    int64_t epoch;               /* whose partitions pass; -1: none yet */
    int64_t left, loaded;        /* exchanges of the epoch whose partition began to leave, and to come */
    int64_t finished;            /* exchanges whose partition has come; 0: the first fill has; -1: not yet */
    int occupant[PST_PARTS_MAX]; /* of a block: the partition that is there or on its way; -1: none */
    bool sending[PST_PARTS_MAX]; /* of a block: a partition is being written from there */
    bool writing[PST_PARTS_MAX]; /* of a partition */
    bool ending;                 /* the last exchanges are to be done, and then the epoch is closed */
    bool closing;                /* the epoch's last partitions are being written */
    int64_t begun;               /* the epoch began after this exchange; 0: at its beginning */
    int64_t to_save, saved;      /* the exchange after which a commit is to be made, and was last; -1: none */
    bool saving;                 /* the partitions in memory are being written for a commit */
    uint64_t home;               /* batches below this one are home */
    uint64_t swaps;
};

/* Makes the array, with room for all extents, unless a file of that size is there. Call it when slots are
 * sized; x->vectors has its sizes. PST_E_IO: for example, the disk is full. */
PST_API PST_MUST_USE pst_rc pst_vectors_exchange_make(struct pst_vectors_exchange *x, const char *run_dir);

/* If a run goes on in another directory than the one that its checkpoint is in: copies the partitions of
 * x->table from there, to the first extents. PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_vectors_exchange_copy(struct pst_vectors_exchange *x, const char *checkpoint);

/* Opens the mover and the training (x->training.epochs has its numbers). x->table is that of the checkpoint,
 * if there is one, or has no extents. */
PST_API PST_MUST_USE pst_rc pst_vectors_exchange_open(struct pst_vectors_exchange *x, struct pst_stage *stage,
                                                      int port, const char *buckets, const char *digest,
                                                      enum pst_order_kind kind);
PST_API void pst_vectors_exchange_close(struct pst_vectors_exchange *x);

/* Pieces that the epochs from `batch` on move, if no partition has an extent yet or all have one. */
PST_API uint64_t pst_vectors_exchange_pieces(struct pst_vectors_exchange *x, uint64_t batch);

/* Whether the rows of a batch are in memory. Begins the batch's epoch, if the one before is closed. */
PST_API PST_MUST_USE pst_rc pst_vectors_exchange_ready(struct pst_vectors_exchange *x, uint64_t batch,
                                                       bool *ready);

/* All batches up to this one are home. */
PST_API PST_MUST_USE pst_rc pst_vectors_exchange_home(struct pst_vectors_exchange *x, uint64_t batch);

/* All batches of the epoch are home: does the exchanges that are left, and writes the partitions that are
 * then in memory. */
PST_API PST_MUST_USE pst_rc pst_vectors_exchange_close_epoch(struct pst_vectors_exchange *x);
/* Whether an epoch is closed and everything written. */
PST_API bool pst_vectors_exchange_closed(const struct pst_vectors_exchange *x);

/* All batches up to a commit within the epoch (pst_parts_epochs_commits) are home: writes the partitions that
 * are in memory after this exchange, and begins no other one before pst_vectors_exchange_committed. */
PST_API PST_MUST_USE pst_rc pst_vectors_exchange_save(struct pst_vectors_exchange *x, int64_t exchange);
/* Whether everything is written that the commit needs. */
PST_API bool pst_vectors_exchange_saved(const struct pst_vectors_exchange *x);

/* Puts what was written onto the medium. */
PST_API PST_MUST_USE pst_rc pst_vectors_exchange_sync(struct pst_vectors_exchange *x);
/* The table is now that of a checkpoint, so its extents stay. Exchanges go on. */
PST_API PST_MUST_USE pst_rc pst_vectors_exchange_committed(struct pst_vectors_exchange *x);

/* Reads a partition into a block, not through the disk stage; only while an epoch is closed. It checks the
 * checksum. PST_E_FORMAT: the partition is damaged; PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_vectors_exchange_read(struct pst_vectors_exchange *x, int partition,
                                                      int block);

#endif

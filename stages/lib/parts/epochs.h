/* epochs.h: the batches of each epoch, if embeddings pass through a buffer in the order of orders.h. Batches
 * do not cross the groups of the order. Each epoch gives the order's partitions other numbers, seeded, so
 * that the same vertices do not always meet in the same sequence (Marius, section 4.1); the exchanges stay as
 * many.
 *
 * A partition leaves with the gradients of all its batches (stages/store.c). But batch b has only the updates
 * up to batch b - `staleness`. If a partition comes again so soon that the next batches would have more,
 * pauses come before them, which are batches without edges. After the last group come `staleness` batches
 * without edges.
 *
 * After every `commit_swaps` exchanges of an epoch, a commit can be made. The edges that are trained after
 * such an exchange and before the next one are followed by `staleness` batches without edges, so all updates
 * are home.
 *
 * Owner: open allocates, close frees. Threads: one. */
#ifndef PST_PARTS_EPOCHS_H
#define PST_PARTS_EPOCHS_H

#include "stages/lib/order/orders.h"
#include "stages/lib/parts/parts.h"

PST_BEGIN_DECLS

struct pst_parts_epochs {
    const struct pst_order *order; /* set by the caller, like the next six */
    const int64_t *bucket_edges;   /* [P x P]: of the partitions' own numbers */
    int64_t batch, staleness, epochs;
    int64_t commit_swaps; /* exchanges from one commit within an epoch to the next; 0: there is none */
    uint64_t seed;
    /* of all epochs */
    int64_t groups;
    int64_t *taken_out;    /* [exchanges + 1]: by which exchange what this one loads left last; 0: by none */
    uint64_t *first_batch; /* [epochs + 1] */
    int64_t largest_group; /* edges */
    /* of one epoch, which pst_parts_epochs_go() chooses */
    int64_t epoch;
    uint16_t number[PST_ORDER_PARTITIONS_MAX]; /* the partition that the order calls i */
    int64_t *group_edges;                      /* [groups] */
    uint64_t *group_batch;                     /* [groups + 1]: its first batch, counted within the epoch */
};

/* PST_E_NOMEM; PST_E_LIMIT: more batches than can be counted. */
PST_API PST_MUST_USE pst_rc pst_parts_epochs_open(struct pst_parts_epochs *e);
PST_API void pst_parts_epochs_close(struct pst_parts_epochs *e);

/* Batches of the run. */
PST_API uint64_t pst_parts_epochs_total(const struct pst_parts_epochs *e);

/* Chooses an epoch, from 0. */
PST_API void pst_parts_epochs_go(struct pst_parts_epochs *e, int64_t epoch);

struct pst_parts_batch {
    int64_t epoch;
    uint64_t at, batches; /* its number in the epoch, and how many the epoch has */
    int64_t group;        /* with a pause: of the batch before it */
    int64_t first;        /* its first edge, counted within the group */
    uint32_t edges;       /* 0: a pause, or the end of the epoch */
    uint32_t flush;       /* from 1: the number of this batch after the last group */
    bool commit;          /* a pause, before which all edges of a commit were trained */
};

/* Describes a batch, counted over the run, and chooses its epoch. */
PST_API void pst_parts_epochs_find(struct pst_parts_epochs *e, uint64_t batch, struct pst_parts_batch *out);

/* Whether a commit follows the edges that are trained between an exchange and the next. */
static inline bool pst_parts_epochs_commits(const struct pst_parts_epochs *e, int64_t exchange)
{
    return e->commit_swaps > 0 && exchange > 0 && exchange < e->order->exchanges &&
           exchange % e->commit_swaps == 0;
}

/* The exchange after which the epoch begins, if it goes on with its batch `at`; 0: at its first batch. */
PST_API int64_t pst_parts_epochs_begin(const struct pst_parts_epochs *e, uint64_t at);

/* The exchange (from 1; 0: the first fill) that must be complete before a batch of this group is gathered. */
static inline int64_t pst_parts_needs(int64_t group)
{
    return group / 2;
}

/* The partitions in which a batch of this group finds its vertices: those in the buffer, and during an
 * exchange those that stay. Returns their number; at most the order's buffer. */
PST_API int pst_parts_epochs_resident(const struct pst_parts_epochs *e, int64_t group,
                                      int partitions[PST_ORDER_PARTITIONS_MAX]);

PST_END_DECLS
#endif

/* states.h: which partitions of the vertices are in a buffer, batch by batch (MariusGNN: Waleffe et al.,
 * EuroSys 2023, section 5). The vertices are cut into partitions, of which a buffer holds some at a time: a
 * state of the buffer. An epoch visits the states of an order one after the other, and gives the order's
 * partitions other numbers than the epoch before. The seeds of a partition are shared out among the states
 * in which it is resident, and each batch has seeds of one state only.
 *
 * Every epoch has the same number of batches: states get as many as their seeds fill, and those that are left
 * over go to states, one each. All depends on the seed and the numbers of the setup alone.
 *
 * Owner: open allocates, close frees. Threads: one. */
#ifndef PST_SAMPLING_STATES_H
#define PST_SAMPLING_STATES_H

#include "common/base.h"
#include "kernels/samplers.h"

PST_BEGIN_DECLS

/* TRAINING: one state an epoch. It has the partitions of all seeds, which come first, and random others
 * (MariusGNN's policy for nodes). The others: the orders of stages/lib/order. */
enum pst_sampling_states_order {
    PST_SAMPLING_STATES_TRAINING,
    PST_SAMPLING_STATES_ORDERED /* from here on: the order of this index below */
};
#define PST_SAMPLING_STATES_ORDERS "training|beta|hilbert|hilbert-symmetric|legend|auto"

enum pst_sampling_states_assign { PST_SAMPLING_STATES_RANDOM, PST_SAMPLING_STATES_BY_ID };
#define PST_SAMPLING_STATES_ASSIGNS "random|id"

struct pst_sampling_states_ask {
    int64_t vertices;
    const int64_t *seeds; /* of an epoch, each once */
    int64_t nseeds, batch;
    int64_t partitions, buffer;
    int order;  /* enum pst_sampling_states_order, or above */
    int assign; /* enum pst_sampling_states_assign */
    uint64_t seed;
};

struct pst_sampling_states {
    int partitions, buffer;
    int64_t rows;       /* of a partition; the last ones can have fewer */
    uint8_t *partition; /* of each vertex */
    int64_t n;          /* states of an epoch */
    uint16_t *state;    /* (n, buffer): the order's numbers of the partitions */
    int fixed;          /* the first so many numbers are the same in all epochs */
    int64_t loads;      /* partitions that an epoch reads, with those of its first state */
    int64_t batch;
    uint64_t batches; /* of an epoch */
    uint64_t seed;
    int64_t *seeds; /* of each partition */
    /* Of each of the order's numbers: the states that have it, visit[first_visit[i]..first_visit[i + 1]). */
    int64_t *first_visit, *visit;
    /* of one epoch, which pst_sampling_states_go chooses */
    int64_t epoch;                 /* -1: none yet */
    uint16_t *number;              /* the partition that the order calls i */
    int64_t *first_seed;           /* (n + 1): of each state, in the epoch's order */
    int64_t *first;                /* (n + 1): its first batch */
    int64_t *seen, *next, *sorted; /* scratch: (partitions), (n), (seeds) */
};

/* PST_E_ARG: the numbers do not fit each other, the vertices, or the seeds; the message says what would do.
 * PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_sampling_states_open(struct pst_sampling_states *s,
                                                     const struct pst_sampling_states_ask *ask);
/* Accepts a zeroed struct. */
PST_API void pst_sampling_states_close(struct pst_sampling_states *s);

/* Chooses an epoch, from 0. */
PST_API void pst_sampling_states_go(struct pst_sampling_states *s, int64_t epoch);

/* The state of a batch of the chosen epoch. */
PST_API int64_t pst_sampling_states_of(const struct pst_sampling_states *s, int64_t batch);
/* Where this batch begins in the order of the seeds; batch: 0 to batches. */
PST_API int64_t pst_sampling_states_begin(const struct pst_sampling_states *s, int64_t batch);
/* One bit for each partition that is resident in a state of the chosen epoch. */
PST_API void pst_sampling_states_resident(const struct pst_sampling_states *s, int64_t state,
                                          uint64_t resident[PST_K_PARTITION_WORDS]);

/* Sorts the seeds of the chosen epoch by state; those of a state stay in their order. order: n positions in
 * ids, which are the seeds of the setup in any order. */
PST_API void pst_sampling_states_sort(struct pst_sampling_states *s, const int64_t *ids, int64_t *order,
                                      int64_t n);

PST_END_DECLS
#endif

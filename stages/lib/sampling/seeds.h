/* seeds.h: the seeds of batches: the vertices of one split of the dataset, in a new order every epoch.
 *
 * Replicas can divide the vertices (Legion, section 4.1, S3 and S4): each vertex belongs to one replica, by
 * hash (among those of the rank that has it, if the dataset is cut into parts), and each replica orders its
 * own share and cuts it into batches. Every replica has the same number of batches in an epoch, so the sizes
 * of batches differ. Without pst_seeds_divide, there is one share.
 *
 * If partitions of the vertices pass through a buffer (algorithms/states.h), a batch has seeds of one state
 * of the buffer, so the sizes of batches differ, too.
 *
 * Owner: the caller. Threads: one. */
#ifndef PST_SEEDS_H
#define PST_SEEDS_H

#include "common/stage.h"

PST_BEGIN_DECLS

struct pst_dataset;
struct pst_dataset_cut;
struct pst_sampling_states;

struct pst_seeds {
    int64_t *ids;    /* of the split, each once */
    int64_t repeats; /* number of repeated ids that were skipped */
    int64_t n, batch;
    uint64_t batches; /* in an epoch */
    uint64_t seed;
    bool shuffle;
    int replicas; /* 0: pst_seeds_divide was not called, and ids are all vertices of the split */
    int64_t share[PST_REPLICAS_MAX];    /* the number of vertices of each replica */
    struct pst_sampling_states *states; /* NULL: pst_seeds_by_states was not called */
    int64_t epoch;                      /* the epoch that `order` is for; -1: none yet */
    int64_t *order;
};

/* split: "train", "val" or "test". PST_E_ARG: the dataset does not have this split, or it is empty.
 * PST_E_FORMAT: an id is out of range. */
PST_API PST_MUST_USE pst_rc pst_seeds_init(struct pst_seeds *s, const struct pst_dataset *ds,
                                           const char *split, int64_t batch, uint64_t seed, bool shuffle);
PST_API void pst_seeds_release(struct pst_seeds *s);

/* How `shuffle` of a sampler orders the seeds, in the order of PST_SEEDS_SHUFFLES. */
enum pst_seeds_shuffle {
    PST_SEEDS_GLOBAL, /* one new order of all seeds every epoch */
    PST_SEEDS_LOCAL,  /* each replica has its own seeds, and a new order of them every epoch */
    PST_SEEDS_FILE    /* the order of the dataset */
};
#define PST_SEEDS_SHUFFLES "global|local|none"

/* Call it after pst_seeds_init. Keeps only the share of one replica: owner[v] is the replica that has vertex
 * v; NULL: pst_seeds_replica says it. cut: of the dataset; its parts may be 0. An epoch then has ceil(largest
 * share / s->batch) batches, and each share is cut into so many of near-equal size. With more vertices than
 * batches, none is empty. PST_E_ARG: a replica has no vertex; the message names it. */
PST_API PST_MUST_USE pst_rc pst_seeds_divide(struct pst_seeds *s, int replica, int replicas,
                                             const int8_t *owner, const struct pst_dataset_cut *cut);

/* Call it after pst_seeds_init, with seeds that are not divided. Each batch then has seeds of one state, in
 * the sequence of the states. states: made for these seeds; they must live as long as *s. */
PST_API void pst_seeds_by_states(struct pst_seeds *s, struct pst_sampling_states *states);

/* Which of several devices, given as bits, has a vertex: each is as likely as any other. */
PST_API int pst_seeds_device(uint64_t devices, uint64_t seed, int64_t vertex);
/* Which of `replicas` replicas on all ranks together has a vertex as a seed, if each has its own: one of the
 * rank that has the vertex's part, or of all if the dataset is whole. */
PST_API int pst_seeds_replica(const struct pst_dataset_cut *cut, int replicas, uint64_t seed, int64_t vertex);
/* The seed of the orders of a device that orders its own share. */
PST_API uint64_t pst_seeds_own_order(uint64_t seed, int device);

/* Seeds that are edges: the rows 0..n of an array. n: at least 1. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_seeds_init_edges(struct pst_seeds *s, int64_t n, int64_t batch, uint64_t seed,
                                                 bool shuffle);

/* Copies the seeds of a batch (counted over the run) to out, which has room for s->batch. Returns their
 * number, which can be 0 if the seeds are divided. */
PST_API int64_t pst_seeds_of(struct pst_seeds *s, uint64_t batch, int64_t *out);
/* The number of seeds that all replicas have in a batch, at least 1. */
PST_API int64_t pst_seeds_of_all(const struct pst_seeds *s, uint64_t batch);

PST_END_DECLS
#endif

/* shares.h: which training vertices are seeds of which device, and the batches of an epoch.
 *
 * Local: each device has its own training vertices, in a new order every epoch (Legion, section 4.1, S4).
 * Global: one permutation of all training vertices is dealt out anew every epoch. Every device has the same
 * number of batches in an epoch; a share is cut into so many of near-equal size.
 *
 * With grains, batches are those that the samplers of a run fill their slots with: a batch of the run is cut
 * into grains (stages/lib/sampling/cut.h), and each of them counts as a batch here. So a device has grains
 * / devices of them for each batch of the run, and their samples are the run's.
 *
 * Owner: pst_legion_shares_init fills what the caller owns. Threads: one. */
#ifndef PST_LEGION_SHARES_H
#define PST_LEGION_SHARES_H

#include "stages/lib/clique/cliques.h"

PST_BEGIN_DECLS

struct pst_legion_shares {
    bool global;
    int devices;
    int64_t n, *ids;                    /* the training vertices; local: sorted by device */
    int64_t begin[PST_CLIQUES_MAX + 1]; /* local: device d has ids[begin[d]] to ids[begin[d + 1] - 1] */
    int64_t steps;                      /* batches of an epoch, of each device */
    int64_t grains;                     /* of all devices; 0: batches are not those of a run */
    int64_t run_batches, run_batch;     /* with grains: of an epoch; its seeds, at most */
    bool in_order;                      /* seeds are not shuffled */
    int64_t batch_max;                  /* no batch has more seeds */
    uint64_t seed;
    int64_t *order; /* of the epoch and device below; global: of all training vertices */
    int64_t order_epoch;
    int order_device;
};

struct pst_legion_shares_config {
    const int64_t *train; /* each vertex once */
    int64_t ntrain;
    int devices;
    /* Local: the part of each vertex, and the devices of each part as bits, each in one part. A part's
     * training vertices go to its devices by hash (S3). NULL: global. */
    const int8_t *part;
    const uint64_t *devices_of_part;
    int64_t batch; /* seeds of a batch: an epoch has ceil(largest share / batch) steps; 0: batches is given */
    int64_t batches; /* steps of an epoch; 0: batch is given */
    /* A multiple of devices; 0: see above. batch is then that of a run: local: the seeds of one device, or
     * else of all. */
    int64_t grains;
    bool in_order; /* global, with grains: seeds keep the order of `train` */
    uint64_t seed;
};

/* PST_E_ARG: a device would have no training vertex, or there are fewer of them than batches. PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_legion_shares_init(struct pst_legion_shares *s,
                                                   const struct pst_legion_shares_config *config);
PST_API void pst_legion_shares_release(struct pst_legion_shares *s);

/* The device that trains on vertex v of `train`, if shares are local. */
PST_API int pst_legion_shares_device(const struct pst_legion_shares_config *config, int64_t v);

/* The batch in the keys of samples (struct pst_sample_key). */
PST_API uint64_t pst_legion_shares_key(const struct pst_legion_shares *s, int device, int64_t step);

/* Copies the seeds of one batch to out, which has room for s->batch_max. Returns their number, which may be 0
 * if a share has fewer vertices than an epoch has steps. */
PST_API int64_t pst_legion_shares_batch(struct pst_legion_shares *s, int device, int64_t epoch, int64_t step,
                                        int64_t *out);

PST_END_DECLS
#endif

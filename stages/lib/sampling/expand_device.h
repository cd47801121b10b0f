/* expand_device.h: samples a minibatch on a GPU. expand.h does it on the CPU, with the same samples. The work
 * of a whole batch is put on the device's queue. Counts stay on the device from one kernel to the next, and
 * the host waits once, for a record of them. What differs from batch to batch lies in pinned memory, so that
 * the work can be a graph (twin.h). Two batches can be on the queue: each has one of two *lanes*, which have
 * memory that the host and the device share.
 *
 * Owner: the caller owns struct pst_expander_device, which pst_expander_device_init fills. It borrows device
 * and algorithm. It takes memory of the device, and pst_expander_device_release gives it back. Threads: one.
 */
#ifndef PST_EXPAND_DEVICE_H
#define PST_EXPAND_DEVICE_H

#include "stages/lib/device/device.h"
#include "stages/lib/sampling/algorithms/algorithms.h"
#include "stages/lib/sampling/resident/clique_device.h"

PST_BEGIN_DECLS

#define PST_EXPAND_DEVICE_LANES 2

/* What differs from batch to batch. */
struct pst_expand_device_batch {
    struct pst_rng_stream draws[PST_HOPS_MAX];
    int64_t n; /* seeds */
    int64_t seeds[];
};

struct pst_expander_device {
    struct pst_device *device;
    struct pst_csc graph; /* its arrays can be read by the device's kernels (topology.h) */
    const struct pst_sampling_opened *algorithm;
    /* not NULL: lists are those of a clique, and draws those of the algorithm uniform */
    struct pst_sampling_resident_device *resident;
    struct pst_minibatch_size
        size; /* the largest minibatch: sizes the memory below, on the device unless it says so */
    struct pst_dedup *table;
    int64_t *vertices, *ids;
    struct pst_expand_device_batch *batch; /* a copy of what the lane has staged */
    /* In pinned memory. The record's sequence is 1 unless a batch of the lane is on the queue. */
    struct pst_expand_device_batch *staged[PST_EXPAND_DEVICE_LANES];
    struct pst_twin_record *record[PST_EXPAND_DEVICE_LANES];
    float *weights;     /* of one hop; NULL: the algorithm does not weigh edges */
    int32_t *relations; /* the same for an algorithm that tells relations apart */
    int32_t *indptr;    /* of one hop */
    int64_t *numbers;   /* see the functions below */
};

/* Numbers in device memory: the number of vertices after h hops (0: the seeds), the number of edges of hop h,
 * and numbers of the caller. */
#define PST_EXPAND_DEVICE_NUMBERS 24 /* 1 + PST_HOPS_MAX + 1 + PST_HOPS_MAX, and some of the caller's */
static inline int64_t *pst_expand_device_vertices(const struct pst_expander_device *x, int h)
{
    return x->numbers + 1 + h;
}
static inline int64_t *pst_expand_device_edges(const struct pst_expander_device *x, int h)
{
    return x->numbers + 2 + x->size.hops + h;
}
static inline int64_t *pst_expand_device_own(const struct pst_expander_device *x, int i)
{
    return x->numbers + 2 + 2 * x->size.hops + i;
}

/* Makes the device's queue, for minibatches up to this size. */
PST_API PST_MUST_USE pst_rc pst_expand_device_queue_for(struct pst_device *device,
                                                        const struct pst_minibatch_size *size);

/* Takes memory for minibatches up to this size. device_graph: of pst_topology_on_device. The caller may set
 * x->resident afterwards; then it calls the functions of clique_device.h that begin and count. PST_E_NOMEM;
 * PST_E_UNSUPPORTED: the algorithm runs on CPUs only. */
PST_API PST_MUST_USE pst_rc pst_expander_device_init(struct pst_expander_device *x, struct pst_device *device,
                                                     const struct pst_csc *device_graph,
                                                     const struct pst_sampling_opened *algorithm,
                                                     const struct pst_minibatch_size *size);
PST_API void pst_expander_device_release(struct pst_expander_device *x);

/* The destination of a hop's block, in memory that kernels can write: indptr (without its first number, which
 * is 0), indices and, if the algorithm has them, weights and relations of edges, as in minibatch.h. local:
 * room for the indices in the device's memory; hops may share it. *digest, in the device's memory: the hashes
 * of the arrays are added to it (minibatch.h). */
struct pst_expand_device_block {
    int32_t *indptr, *indices;
    float *weights;
    int32_t *relations;
    int32_t *local;
    uint64_t *digest;
};

/* Sets what the lane's next batch has: n seeds (at most size.n[0]), which may change when it returns, and the
 * random numbers of the key, whose hop is ignored. The lane's batch before must be done
 * (pst_expand_device_done). */
PST_API void pst_expand_device_stage(struct pst_expander_device *x, int lane,
                                     const struct pst_sample_key *key, const int64_t *seeds, int64_t n);
/* Puts a whole minibatch on the queue: the seeds that are staged, then one hop for each fanout. It does not
 * wait for the device. The key is the staged one; an algorithm that is not PST_SAMPLING_REPLAYS reads it now.
 * The hops set key.hop. blocks: one a hop; NULL: the caller wants only vertices and counts.
 * pst_expand_device_done reports a failure, a sample that does not fit (PST_E_LIMIT), and an id that is out
 * of range (PST_E_FORMAT). */
PST_API void pst_expand_device(struct pst_expander_device *x, int lane, struct pst_sample_key key,
                               const int64_t *fanout, const struct pst_expand_device_block *blocks);
/* Puts the lane's record of all counts on the queue, with the first `nown` numbers of the caller. */
PST_API void pst_expand_device_record(struct pst_expander_device *x, int lane, int nown);
/* Waits for that record, but not for work that was put on the queue after it. *found gets the counts, and
 * own[0..nown) gets the caller's numbers. *data_fault: the error code comes from a kernel and has no message.
 */
PST_API PST_MUST_USE pst_rc pst_expand_device_done(struct pst_expander_device *x, int lane,
                                                   struct pst_minibatch_size *found, int64_t *own, int nown,
                                                   bool *data_fault);

PST_END_DECLS
#endif

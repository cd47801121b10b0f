/* fill_device.h: what fill.h does, on a GPU: a whole minibatch is put on the device's queue, numbers stay
 * there from one kernel to the next, and the host waits once, for a record of them; cached rows follow behind
 * it. Samples are the CPU's exactly.
 *
 * Owner: each init fills what the caller owns and borrows the device; release gives back what was taken of
 * it. Threads: one. Slots must be memory that host and kernels both use. */
#ifndef PST_FILL_DEVICE_H
#define PST_FILL_DEVICE_H

#include "stages/lib/device/device.h"
#include "stages/lib/sampling/fill.h"

PST_BEGIN_DECLS

/* A sampling algorithm on a device: pst_sample_fn (fill.h) as twin.h's sample_n: put on the queue, for
 * vertices whose number it will have left; *total gets that of the edges. */
typedef pst_rc (*pst_device_sample_fn)(void *user, const struct pst_device *device,
                                       const struct pst_csc *graph, const struct pst_sample_key *key,
                                       const int64_t *vertices, struct pst_twin_n n, int fanout,
                                       int32_t *indptr, int64_t *out, int64_t capacity, int64_t *total);

/* A graph where kernels can read it: in device memory if it has at most `budget` bytes, else in pinned memory
 * of the host, where each neighbour that is taken crosses the bus. device_graph's arrays are the device's. */
PST_API PST_MUST_USE pst_rc pst_expand_device_topology(struct pst_device *device, const struct pst_csc *graph,
                                                       uint64_t budget, struct pst_csc *device_graph,
                                                       bool *in_place);

/* ---- expansion ----------------------------------------------------------------------------------- */

struct pst_expander_device {
    struct pst_device *device;
    struct pst_csc graph; /* of pst_expand_device_topology */
    pst_device_sample_fn sample;
    void *user;
    struct pst_minibatch_size size; /* of a minibatch; and of the memory below, all on the device */
    struct pst_dedup *table;
    int64_t *seeds, *vertices, *ids;
    int32_t *indptr;  /* of one hop */
    int64_t *numbers; /* pst_expand_device_vertices, pst_expand_device_edges, and what the user adds */
};

#define PST_EXPAND_DEVICE_NUMBERS 24 /* 1 + PST_HOPS_MAX + 1 + PST_HOPS_MAX, and some of the user's */

/* How many vertices there are after h hops (0: the seeds), and edges in hop h: device memory. */
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

/* Makes the device's queue, for minibatches of size. */
PST_API PST_MUST_USE pst_rc pst_expand_device_queue_for(struct pst_device *device,
                                                        const struct pst_minibatch_size *size);

/* Takes the memory for minibatches of size, with at most size.n[0] seeds. */
PST_API PST_MUST_USE pst_rc pst_expander_device_init(struct pst_expander_device *x, struct pst_device *device,
                                                     const struct pst_csc *device_graph,
                                                     pst_device_sample_fn sample, void *user,
                                                     const struct pst_minibatch_size *size);
PST_API void pst_expander_device_release(struct pst_expander_device *x);

/* Where a hop's block goes, in memory that kernels can write: indptr as of minibatch.h (but for its first
 * element, which is 0), indices. */
struct pst_expand_device_block {
    int32_t *indptr, *indices;
};

/* Puts a whole expansion on the queue: seeds[0..n), n at most size.n[0], then a hop for each fanout. key.hop
 * is set for each. blocks: NULL, only vertices and numbers are of interest. What does not fit (PST_E_LIMIT)
 * or is out of range (PST_E_FORMAT) is told by the record of pst_expand_device_done. */
PST_API PST_MUST_USE pst_rc pst_expand_device(struct pst_expander_device *x, struct pst_sample_key key,
                                              const int64_t *fanout, const int64_t *seeds, int64_t n,
                                              const struct pst_expand_device_block *blocks);
/* Puts a record of the numbers behind it, with own[0..nown) of pst_expand_device_own. */
PST_API void pst_expand_device_record(struct pst_expander_device *x, int nown);
/* Waits for that record, not for what was put behind it; *found gets the numbers, own those of
 * pst_expand_device_own.
 */
PST_API PST_MUST_USE pst_rc pst_expand_device_done(struct pst_expander_device *x,
                                                   struct pst_minibatch_size *found, int64_t *own, int nown,
                                                   bool *data_fault);

/* ---- filling ------------------------------------------------------------------------------------- */

struct pst_filler_device {
    struct pst_filler *filler; /* borrowed: layout, fanout, labels, features */
    struct pst_expander_device expander;
    const struct pst_cache *cache; /* NULL: none; of the device, as are the rows */
    const char *cache_rows;
    int32_t *hit_pos, *hit_row;
    int32_t *miss_pos; /* pinned: requests are made from it */
    double device_s;   /* waited for so far */
};

/* cache and cache_rows have been set by the caller, and the queue is there; f's expander need not be
 * initialised but for what pst_sampling_measure looks at: graph, sample, user. */
PST_API PST_MUST_USE pst_rc pst_filler_device_init(struct pst_filler_device *d, struct pst_filler *f,
                                                   struct pst_device *device,
                                                   const struct pst_csc *device_graph,
                                                   pst_device_sample_fn sample, void *user);
PST_API void pst_filler_device_release(struct pst_filler_device *d);

/* pst_sampling_fill (fill.h), on the device. All requests are announced at once. Then all is in the slot but
 * the cached rows: they may still be on their way in the device's queue. They go to `rows` (of the layout's
 * size and stride, in any memory of the device's); NULL: to the slot's features. */
PST_API PST_MUST_USE pst_rc pst_fill_device(struct pst_filler_device *d, const struct pst_fill_job *job,
                                            void *slot, void *rows, pst_announce_fn announce, void *user,
                                            struct pst_fill_result *result);

/* A queue says only that something is out of range (PST_E_FORMAT); the CPU, over the same job, says what. f
 * as pst_sampling_measure wants it. Returns what it found, with its message. */
PST_API PST_MUST_USE pst_rc pst_fill_device_explain(const struct pst_device *device,
                                                    const struct pst_filler *f,
                                                    const struct pst_fill_job *job);

PST_END_DECLS
#endif

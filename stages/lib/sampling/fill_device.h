/* fill_device.h: fills a slot on a GPU. fill.h does it on the CPU, with the same samples.
 *
 * Owner: the caller owns struct pst_filler_device, which pst_filler_device_init fills. It borrows filler and
 * device. Threads: one. Slots must lie in memory that both host and kernels can use. */
#ifndef PST_FILL_DEVICE_H
#define PST_FILL_DEVICE_H

#include "stages/lib/sampling/expand_device.h"
#include "stages/lib/sampling/fill.h"

PST_BEGIN_DECLS

#define PST_FILL_DEVICE_GRAPHS 256 /* some MB; if there would be more, the work of a batch is no graph */

/* The work of a batch, as a graph: for one slot, one place of the cached rows and one lane. */
struct pst_fill_device_graph {
    char *slot, *rows;
    int lane;
    struct pst_twin_graph *graph;
};

/* A batch on the queue. */
struct pst_fill_device_flight {
    struct pst_fill_job job; /* what it points to must stay */
    char *slot, *rows;
    int lane;
    bool queued; /* false: the seeds do not fit, so nothing was put on the queue */
    double begin_s;
};

struct pst_filler_device {
    struct pst_filler *filler; /* borrowed: layout, fanout, labels, features */
    struct pst_expander_device expander;
    const struct pst_cache *cache; /* NULL: there is none; in the device's memory */
    struct pst_twin_tiers tiers;   /* the cached rows: near in the device's memory, far in pinned memory */
    /* not NULL: rows and lists of a clique; cache is its index */
    struct pst_sampling_resident_device *resident;
    int32_t *hit_pos, *hit_row;
    /* In the device's memory; if the host makes the requests (types), in pinned memory, one for each lane. */
    int32_t *miss_pos[PST_EXPAND_DEVICE_LANES];
    int32_t *local;  /* the indices of one hop */
    double device_s; /* time spent waiting so far, in seconds */
    double done_s;   /* when the last batch came */
    bool lane_taken[PST_EXPAND_DEVICE_LANES];
    bool replays; /* batches are graphs (PST_SAMPLING_REPLAYS), unless PENSTOCK_GPU_GRAPHS is 0 */
    bool warm;    /* there was a batch */
    int ngraphs;
    struct pst_fill_device_graph graphs[PST_FILL_DEVICE_GRAPHS];
};

/* The caller must have set cache, tiers and resident, and made the device's queue. f's expander needs only
 * the fields that pst_sampling_measure uses. The function takes device memory. PST_E_NOMEM;
 * PST_E_UNSUPPORTED: the algorithm runs on CPUs only. */
PST_API PST_MUST_USE pst_rc pst_filler_device_init(struct pst_filler_device *d, struct pst_filler *f,
                                                   struct pst_device *device,
                                                   const struct pst_csc *device_graph,
                                                   const struct pst_sampling_opened *algorithm);
PST_API void pst_filler_device_release(struct pst_filler_device *d);

/* pst_sampling_fill on the device, in two calls. Between them, another batch can be put on the queue: at most
 * PST_EXPAND_DEVICE_LANES can be there. pst_fill_device_end ends the batches in any order.
 *
 * It ignores job->early and announces all requests at once, so a slot is never left empty. After
 * pst_fill_device_end, the slot has everything except the cached rows, which the queue may still be writing.
 * They go to `rows` (any memory of the device, of layout.features_bytes), or to the slot's features if `rows`
 * is NULL. Without job->overlap, the function waits for the cached rows. The spans of all hops are those of
 * the last one, and begin when the batch before has come. */
PST_API PST_MUST_USE pst_rc pst_fill_device_begin(struct pst_filler_device *d, const struct pst_fill_job *job,
                                                  void *slot, void *rows,
                                                  struct pst_fill_device_flight *flight);
PST_API PST_MUST_USE pst_rc pst_fill_device_end(struct pst_filler_device *d,
                                                const struct pst_fill_device_flight *flight,
                                                pst_fill_announce_fn announce, void *to,
                                                struct pst_fill_result *result);

/* A kernel reports only that some id is out of range. This function draws the job again on the CPU to find
 * the id, and returns that error with its message. f: as for pst_sampling_measure. */
PST_API PST_MUST_USE pst_rc pst_fill_device_explain(const struct pst_device *device,
                                                    const struct pst_filler *f,
                                                    const struct pst_fill_job *job);

PST_END_DECLS
#endif

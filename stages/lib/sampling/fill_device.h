/* fill_device.h: fills a slot on a GPU, as fill.h does on the CPU, with the same samples.
 *
 * Owner: pst_filler_device_init fills what the caller owns. It borrows filler and device. Threads: one. Slots
 * must lie in memory that both host and kernels use. */
#ifndef PST_FILL_DEVICE_H
#define PST_FILL_DEVICE_H

#include "stages/lib/sampling/expand_device.h"
#include "stages/lib/sampling/fill.h"

PST_BEGIN_DECLS

struct pst_filler_device {
    struct pst_filler *filler; /* borrowed: layout, fanout, labels, features */
    struct pst_expander_device expander;
    const struct pst_cache *cache; /* NULL: there is none; in the device's memory, like cache_rows */
    const char *cache_rows;
    int32_t *hit_pos, *hit_row;
    int32_t *miss_pos; /* pinned host memory: the host makes requests of it */
    double device_s;   /* time spent waiting so far, in seconds */
};

/* The caller has set cache and cache_rows and made the device's queue. f's expander needs only what
 * pst_sampling_measure looks at. Takes device memory. PST_E_NOMEM; PST_E_UNSUPPORTED: the algorithm runs on
 * CPUs only. */
PST_API PST_MUST_USE pst_rc pst_filler_device_init(struct pst_filler_device *d, struct pst_filler *f,
                                                   struct pst_device *device,
                                                   const struct pst_csc *device_graph,
                                                   const struct pst_sampling_opened *algorithm);
PST_API void pst_filler_device_release(struct pst_filler_device *d);

/* pst_sampling_fill on the device. It announces all requests at once, whatever job->early says, so a slot is
 * never left empty. When it returns, everything is in the slot but the cached rows, which the queue may still
 * be writing. They go to `rows` (any memory of the device, of layout.features_bytes), or, if that is NULL, to
 * the slot's features. */
PST_API PST_MUST_USE pst_rc pst_fill_device(struct pst_filler_device *d, const struct pst_fill_job *job,
                                            void *slot, void *rows, pst_fill_announce_fn announce, void *to,
                                            struct pst_fill_result *result);

/* A kernel says only that some id is out of range. This draws the job again on the CPU to find out which, and
 * returns that error with its message. f: as for pst_sampling_measure. */
PST_API PST_MUST_USE pst_rc pst_fill_device_explain(const struct pst_device *device,
                                                    const struct pst_filler *f,
                                                    const struct pst_fill_job *job);

PST_END_DECLS
#endif

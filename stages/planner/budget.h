/* budget.h: the size of the cache, if cpu_cache is "auto": the memory that the other parts of the run leave
 * (Hyperion, section IV-E, gives its caches "all the available" memory). Owner: none. Threads: any. */
#ifndef PST_PLANNER_BUDGET_H
#define PST_PLANNER_BUDGET_H

#include "stages/lib/device/device.h"
#include "stages/lib/sampling/input.h"

PST_BEGIN_DECLS

#define PST_PLANNER_SLOTS 8 /* that a reserve of "auto" leaves room for */

/* Bytes. free: of the machine or the memory cgroup, or of the GPU, when the plan is made. reserve: for slots,
 * model, evaluation and the page cache. cache: free - reserve - the GPU tier, but at most what there is to
 * cache. */
struct pst_planner_budget {
    uint64_t free, reserve, cache;
};

/* device: where planner and sampler are. most: the largest batch. reserve: bytes; UINT64_MAX:
 * PST_PLANNER_SLOTS slots of the largest batch, and a quarter of the free memory. lists: the cache may hold
 * lists, too. */
struct pst_planner_budget pst_planner_budget(const struct pst_device *device,
                                             const struct pst_sampling_input *in,
                                             const struct pst_minibatch_size *most, uint64_t gpu_cache,
                                             uint64_t reserve, bool lists);

PST_END_DECLS
#endif

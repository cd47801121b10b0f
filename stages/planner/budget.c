/* budget.c: how much memory the CPU tier may take. */
#include "stages/planner/budget.h"

#include "common/util/memory.h"

#define CHUNKS 64 /* chunks of lists and rows are not all full: so much of the tier may stay empty */

static uint64_t slot_bytes(const struct pst_sampling_input *in, const struct pst_minibatch_size *most)
{
    struct pst_minibatch_layout layout;
    pst_minibatch_layout_init(&layout, most, in->ds.feature_dim > 0 ? in->ds.stride_bytes : 0);
    return layout.bytes;
}

/* All rows, and all lists with their offsets. */
static uint64_t cacheable(const struct pst_sampling_input *in, bool lists)
{
    const uint64_t vertices = (uint64_t)in->ds.vertices,
                   rows = in->ds.feature_dim > 0 ? vertices * in->ds.stride_bytes : 0;
    return rows +
           (lists ? vertices * sizeof(int64_t) + (uint64_t)in->graph.edges * (uint64_t)in->graph.index_bytes
                  : 0);
}

/* A GPU that does not answer has no room: the sampler says why when it opens the GPU. */
static uint64_t free_memory(const struct pst_device *device)
{
    uint64_t there = 0, all = 0;
    char why[PST_TWIN_WHY_BYTES] = "";
    if (!pst_device_is_cuda(device))
        return pst_memory_free();
    return device->twin->room(device->number, &there, &all, why) == PST_OK ? there : 0;
}

struct pst_planner_budget pst_planner_budget(const struct pst_device *device,
                                             const struct pst_sampling_input *in,
                                             const struct pst_minibatch_size *most, uint64_t gpu_cache,
                                             uint64_t reserve, bool lists)
{
    struct pst_planner_budget b = {.free = free_memory(device), .reserve = reserve};
    const uint64_t things = cacheable(in, lists), all = things + (lists ? things / CHUNKS : 0);
    if (reserve == UINT64_MAX)
        b.reserve = PST_PLANNER_SLOTS * slot_bytes(in, most) + b.free / 4;
    const uint64_t taken = b.reserve > UINT64_MAX - gpu_cache ? UINT64_MAX : b.reserve + gpu_cache;
    b.cache = b.free > taken ? b.free - taken : 0;
    b.cache = b.cache < all ? b.cache : all;
    return b;
}

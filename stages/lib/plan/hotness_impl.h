/* hotness_impl.h: what both sources of hotness that read edges share. */
#ifndef PST_HOTNESS_IMPL_H
#define PST_HOTNESS_IMPL_H

#include "kernels/kernels.h"

static inline int64_t pst_hotness_neighbour(const struct pst_csc *graph, int64_t edge)
{
    return graph->index_bytes == 4 ? ((const int32_t *)graph->indices)[edge]
                                   : ((const int64_t *)graph->indices)[edge];
}

#endif

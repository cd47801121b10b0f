/* probe_routes.h: what routes of a pipeline on GPUs need, done as the runtime does it (common/ipc/gpus.h) by
 * two processes: on a real GPU or, where $PENSTOCK_CUDA names them, on the virtual ones of the tests. */
#ifndef PST_PROBE_ROUTES_H
#define PST_PROBE_ROUTES_H

#include "tools/penstock/machine/probe_gpu.h"

struct pst_probe_routes {
    struct pst_probe_answer library; /* CUDA's shared object and a GPU; if not, nothing below is known */
    char gpu[96];
    struct pst_probe_answer pinned, memory, reopen, event;
};

/* As pst_probe_pair. */
PST_MUST_USE pst_rc pst_probe_routes(struct pst_probe_routes *found);

#endif

/* probe_routes.h: tries what routes of a pipeline on GPUs need, as the runtime does it (common/ipc/gpus.h),
 * in two processes: on a real GPU or, if $PENSTOCK_CUDA names them, on the virtual GPUs of the tests. */
#ifndef PST_PROBE_ROUTES_H
#define PST_PROBE_ROUTES_H

#include "tools/penstock/machine/probe_gpu.h"

struct pst_probe_routes {
    /* CUDA's shared object and a GPU; if it does not work, the rest is not known */
    struct pst_probe_answer library;
    char gpu[96];
    struct pst_probe_answer pinned, memory, reopen, event;
};

/* Fails as pst_probe_pair does. */
PST_MUST_USE pst_rc pst_probe_routes(struct pst_probe_routes *found);

#endif

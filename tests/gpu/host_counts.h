/* host_counts.h: what the host build counts (kernels/cuda/host/counts.h, which is C++), for tests in C. */
#ifndef HOST_COUNTS_H
#define HOST_COUNTS_H

#include "tests/kernel/twin_fixture.h"

#include <dlfcn.h>

enum { LAUNCHES, COPIES, PAGEABLE, WAITS, ROWS, POLLING, ELSEWHERE, COUNTS };

/* The counts since the last call. False: this GPU counts nothing. */
static inline bool counted(uint64_t out[COUNTS])
{
    const char *build = getenv("BUILD");
    char path[512];
    void (*counts)(uint64_t *) = NULL;
    (void)snprintf(path, sizeof path, "%s/tests/libpenstock-cuda-host.so", build ? build : "build");
    void *object = getenv("PENSTOCK_TWIN") ? NULL : dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (object)
        *(void **)&counts = dlsym(object, "pst_cu_host_counts");
    assert_true(counts || getenv("PENSTOCK_TWIN"));
    if (counts)
        counts(out);
    return counts != NULL;
}

#endif

/* host_counts.h: what the host build has counted (kernels/cuda/host/counts.h), for tests in C. */
#ifndef HOST_COUNTS_H
#define HOST_COUNTS_H

#include "kernels/cuda/host/counts.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* The counts since the last call. False: the kernels run on a real GPU, where nothing is counted. */
static inline bool host_counts(uint64_t out[PST_HOST_COUNTS])
{
    const char *build = getenv("BUILD");
    char path[512];
    void (*counts)(uint64_t *) = NULL;
    if (getenv("PENSTOCK_TWIN"))
        return false;
    (void)snprintf(path, sizeof path, "%s/tests/libpenstock-cuda-host.so", build ? build : "build");
    void *object = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (object)
        *(void **)&counts = dlsym(object, "pst_cu_host_counts");
    assert_non_null(counts);
    counts(out);
    (void)dlclose(object);
    return true;
}

#endif

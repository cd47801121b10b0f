/* virtual_gpu.h: a GPU for the tests of stages: the host build (kernels/cuda/host), or, with
 * PENSTOCK_TWIN=cuda, the machine's own; without one the test is skipped. */
#ifndef VIRTUAL_GPU_H
#define VIRTUAL_GPU_H

#include "common/error.h"
#include "common/ipc/gpus.h"
#include "stages/lib/device/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GPU_SKIPPED = 77 };

static inline bool gpu_is_virtual(void)
{
    const char *wanted = getenv("PENSTOCK_TWIN");
    return !wanted || strcmp(wanted, "cuda") != 0;
}

static inline void gpu_setup(void)
{
    const char *build = getenv("BUILD");
    char path[512];
    struct pst_device device;
    (void)snprintf(path, sizeof path, "%s/tests/libpenstock-cuda-host.so", build ? build : "build");
    if (gpu_is_virtual())
        setenv("PENSTOCK_CUDA", path, 1);
    const pst_rc rc = pst_device_open(&device, "cuda:0");
    if (rc == PST_OK) {
        pst_device_close(&device);
        return;
    }
    printf("# %s\n", pst_error_text());
    (void)fflush(stdout);
    _exit(gpu_is_virtual() ? 1 : GPU_SKIPPED);
}

static int gpu_own_waits; /* the test's, among those that the host build counts */

/* An event behind all that a stage has put in its stream so far. NULL: a call has failed. */
static inline void *gpu_mark(const char *device, void *stream)
{
    const int gpu = pst_gpu_number(device);
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES];
    void *event;
    return pst_gpus_open(&gpus) == PST_OK && gpus->event_new(gpu, false, &event, why) == PST_OK &&
                   gpus->event_record(gpu, event, stream, why) == PST_OK
               ? event
               : NULL;
}

/* Waits for it, and frees it. False: it cannot be told. */
static inline bool gpu_passed(const char *device, void *event)
{
    const int gpu = pst_gpu_number(device);
    const struct pst_gpus *gpus;
    char why[PST_GPUS_WHY_BYTES];
    gpu_own_waits++;
    return event != NULL && pst_gpus_open(&gpus) == PST_OK &&
           gpus->event_wait(gpu, event, NULL, true, why) == PST_OK &&
           gpus->event_free(gpu, event, why) == PST_OK;
}

/* All that a stage has put in its stream is done, as for the next user of a slot. False: it cannot be told.
 */
static inline bool gpu_stream_done(const char *device, void *stream)
{
    return gpu_passed(device, gpu_mark(device, stream));
}

/* Where a virtual GPU's stream comes among those of one process: the less, the earlier; 0 is the last. */
static inline int virtual_gpu_priority(void *stream)
{
    int (*priority)(const void *) = NULL;
    void *object = dlopen(getenv("PENSTOCK_CUDA"), RTLD_LAZY | RTLD_NOLOAD);
    *(void **)&priority = object ? dlsym(object, "pst_cu_host_stream_priority") : NULL;
    const int found = priority ? priority(stream) : INT_MAX;
    if (object)
        (void)dlclose(object);
    return found;
}

/* Bytes of device memory that are still taken in this process; 0 on a real GPU, which the driver itself also
 * uses. */
static inline uint64_t virtual_gpu_left(void)
{
    if (!gpu_is_virtual())
        return 0;
    struct pst_device device;
    char why[PST_TWIN_WHY_BYTES];
    uint64_t there = 0, all = 1;
    if (pst_device_open(&device, "cuda:0") != PST_OK || device.twin->room(0, &there, &all, why) != PST_OK)
        return UINT64_MAX;
    pst_device_close(&device);
    return all - there;
}

#endif

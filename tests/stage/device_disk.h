/* device_disk.h: the disk's engine (disk_bench.h) with queues driven by kernels, on a virtual GPU, or, with
 * PENSTOCK_TWIN=cuda, a real one. Used by test_device_disk*.c. Included once by each. */
#ifndef DEVICE_DISK_H
#define DEVICE_DISK_H

#include "tests/stage/disk_bench.h"

#include "common/ipc/gpus.h"
#include "stages/lib/io/nvme_impl.h"
#include "tests/stage/virtual_gpu.h"

static const char *const stacks[] = {"async", "sync", "batch"};
#define STACKS (sizeof stacks / sizeof stacks[0])
#define FEW 1000 /* rows of a file that need not be large */

static const struct pst_gpus *gpus;

/* Before all else. */
static inline void find_gpus(void)
{
    find_programs();
    gpu_setup();
    assert(pst_gpus_open(&gpus) == PST_OK);
}

static inline void gpu_bench_rows(struct bench *b, const char *stack, uint64_t row_bytes, uint64_t rows)
{
    char why[PST_GPUS_WHY_BYTES];
    setup_rows(b, "emulated", row_bytes, rows);
    b->config.nvme.stack = stack;
    b->config.nvme.gpu = "cuda:0";
    if (gpus->pin(0, b->memory.base, b->memory.bytes, why) != PST_OK) /* the runtime does it for slots */
        fail_msg("%s", why);
}

static inline void gpu_bench(struct bench *b, const char *stack, uint64_t row_bytes)
{
    gpu_bench_rows(b, stack, row_bytes, FEW);
}

static inline void gpu_end(struct bench *b)
{
    char why[PST_GPUS_WHY_BYTES];
    pst_disk_free(b->disk);
    b->disk = NULL;
    if (gpus->unpin(0, b->memory.base, why) != PST_OK)
        fail_msg("%s", why);
    teardown(b);
}

static inline struct pst_io_driven driven(struct bench *b)
{
    struct pst_io_driven d;
    assert_true(pst_disk_driven(b->disk, &d));
    return d;
}

static inline struct nvme *driver_of(const struct bench *b)
{
    return b->disk->backend.impl;
}

#endif

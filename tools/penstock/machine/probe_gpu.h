/* probe_gpu.h: finds out what CUDA can do on this machine. Two processes try it: one makes memory and an
 * event, the other opens them, like a memory host and a stage. The caller's process never uses CUDA. */
#ifndef PST_PROBE_GPU_H
#define PST_PROBE_GPU_H

#include "common/base.h"

#define PST_PROBE_DEVICES_MAX 16 /* the largest machines have no more */
#define PST_PROBE_WHY_BYTES 160

struct pst_probe_device {
    char name[96];
    uint64_t bytes;
    int major, minor, multiprocessors;
    uint32_t peers; /* bit i: it can access device i's memory */
};

/* Whether something works, and why not. */
struct pst_probe_answer {
    bool works;
    char why[PST_PROBE_WHY_BYTES];
};

struct pst_probe_gpu {
    struct pst_probe_answer driver; /* if it does not work, the rest is not known */
    int version;                    /* of CUDA: 1000 * major + 10 * minor */
    int devices;
    struct pst_probe_device device[PST_PROBE_DEVICES_MAX];
    struct pst_probe_answer shared_memory; /* shared between processes and pinned by CUDA */
    /* needed to drive a drive's queues by kernels: registered memory has one address; GPU memory can be
     * exported for DMA; a controller's registers can be registered (tried with one that is bound to vfio-pci)
     */
    struct pst_probe_answer one_address, dma_buf, drive_registers;
    struct pst_probe_answer ipc_memory; /* on device 0, as are the next */
    struct pst_probe_answer ipc_reopen; /* the same process closes and opens it again */
    struct pst_probe_answer ipc_event;
};

/* PST_E_IO: the processes could not be started. PST_E_TIMEOUT: they did not answer. */
pst_rc pst_probe_gpu(struct pst_probe_gpu *found);

#endif

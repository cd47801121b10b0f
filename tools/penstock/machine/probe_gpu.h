/* probe_gpu.h: what CUDA can do on this machine, found out by two processes that do it: one makes memory and
 * an event, the other opens them, as a memory host and a stage do. The caller's process never touches CUDA.
 */
#ifndef PST_PROBE_GPU_H
#define PST_PROBE_GPU_H

#include "common/base.h"

#define PST_PROBE_DEVICES_MAX 16 /* of the largest machine sold with one host */
#define PST_PROBE_WHY_BYTES 160

struct pst_probe_device {
    char name[96];
    uint64_t bytes;
    int major, minor, multiprocessors;
    uint32_t peers; /* bit i: can read device i's memory */
};

/* Whether something works, and if not, why. */
struct pst_probe_answer {
    bool works;
    char why[PST_PROBE_WHY_BYTES];
};

struct pst_probe_gpu {
    struct pst_probe_answer driver; /* if it does not work, nothing below is known */
    int version;                    /* 1000 * major + 10 * minor of CUDA */
    int devices;
    struct pst_probe_device device[PST_PROBE_DEVICES_MAX];
    struct pst_probe_answer shared_memory; /* registered with CUDA: pinned between processes */
    /* a drive's queues driven by kernels: registered memory has one address; GPU memory can be exported for
     * DMA; a controller's registers can be registered, tried with one that is bound to vfio-pci */
    struct pst_probe_answer one_address, dma_buf, drive_registers;
    struct pst_probe_answer ipc_memory; /* on device 0, as the rest */
    struct pst_probe_answer ipc_reopen; /* closed and opened again by the same process */
    struct pst_probe_answer ipc_event;
};

/* PST_E_IO, PST_E_TIMEOUT: the processes could not be started, or did not answer. */
pst_rc pst_probe_gpu(struct pst_probe_gpu *found);

#endif

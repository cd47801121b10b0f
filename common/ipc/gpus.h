/* gpus.h: GPUs as the runtime sees them: which there are, their memory, and events, between processes.
 * CUDA's shared object has the functions (kernels/cuda/memory.cu) in one table; a process that opens it must
 * not fork afterwards, so the supervisor never does: it asks penstock-memory what there is.
 *
 * Every function returns PST_OK, or what is wrong with its reason in why (PST_GPUS_WHY_BYTES). Threads:
 * any. */
#ifndef PST_GPUS_H
#define PST_GPUS_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_GPUS_WHY_BYTES 320 /* a path, a CUDA error and its call */
#define PST_GPUS_MAX 16        /* of the largest machine sold with one host */
#define PST_IPC_BYTES 64       /* of a handle of memory or of an event, by CUDA's interface */

struct pst_ipc {
    unsigned char bytes[PST_IPC_BYTES];
};

struct pst_gpu {
    char name[96];
    uint64_t bytes;
    int major, minor, multiprocessors;
    uint32_t peers; /* bit i: can read device i's memory */
};

struct pst_gpus {
    uint64_t bytes; /* of this structure, which tells a table of another build */

    pst_rc (*count)(int *gpus, char *why); /* PST_OK with 0: a driver, but no GPU */
    pst_rc (*describe)(int gpu, struct pst_gpu *out, char *why);

    /* Device memory. A handle is opened by other processes than its maker, once a process (CUDA counts
     * further opens), on the memory's own device or on one GPU that reaches it; it is closed before the maker
     * frees the memory or ends. */
    pst_rc (*alloc)(int gpu, uint64_t bytes, void **at, char *why);
    pst_rc (*release)(int gpu, void *at, char *why);
    pst_rc (*share)(int gpu, void *at, struct pst_ipc *handle, char *why);
    pst_rc (*open)(int gpu, const struct pst_ipc *handle, void **at, char *why);
    pst_rc (*close)(int gpu, void *at, char *why);

    /* Host memory that is mapped in this process becomes memory for the kernels of all its GPUs, at the same
     * address. It is unpinned before it is unmapped. */
    pst_rc (*pin)(int gpu, void *at, uint64_t bytes, char *why);
    pst_rc (*unpin)(int gpu, void *at, char *why);

    /* Events, of one process or (shared) between several: by others opened on the maker's GPU, freed by both.
     * record: in stream (a cudaStream_t of the event's GPU; NULL: the default one); wait: by stream, or, with
     * host, by the caller, as long as for a queue (twin.h: PST_E_TIMEOUT), for the last record before the
     * call. An event that was never recorded has passed. */
    pst_rc (*event_new)(int gpu, bool shared, void **event, char *why);
    pst_rc (*event_free)(int gpu, void *event, char *why);
    pst_rc (*event_share)(int gpu, void *event, struct pst_ipc *handle, char *why);
    pst_rc (*event_open)(int gpu, const struct pst_ipc *handle, void **event, char *why);
    pst_rc (*event_record)(int gpu, void *event, void *stream, char *why);
    pst_rc (*event_wait)(int gpu, void *event, void *stream, bool host, char *why);

    /* Between any of these memories, also of two GPUs; done when it returns. */
    pst_rc (*copy)(int gpu, void *to, const void *from, uint64_t bytes, char *why);
};

/* What the shared object exports. */
#define PST_GPUS_SYMBOL "pst_gpus_cuda"
typedef const struct pst_gpus *(*pst_gpus_fn)(void);

/* The table, opened once a process: from $PENSTOCK_CUDA, else libpenstock-cuda.so beside this library.
 * PST_E_UNSUPPORTED, with pst_fail: there is none, or a library that it needs is missing. */
PST_API PST_MUST_USE pst_rc pst_gpus_open(const struct pst_gpus **gpus);

/* How many GPUs this machine has, found out by a process that is asked once and ends; 0 with the reason in
 * why if there are none. For processes that fork. */
PST_API int pst_gpus_count(char why[PST_GPUS_WHY_BYTES]);
/* Found out with it: can kernels of this GPU use the other's memory? Its own: yes. */
PST_API bool pst_gpus_reach(int gpu, int other);

/* The number of "cuda:N"; -1 for a device of another kind. */
PST_API int pst_gpu_number(const char *device);

/* A handle as text and back; false: no such text. */
#define PST_IPC_TEXT_BYTES (2 * PST_IPC_BYTES + 1)
PST_API void pst_ipc_text(const struct pst_ipc *handle, char out[PST_IPC_TEXT_BYTES]);
PST_API bool pst_ipc_parse(const char *text, struct pst_ipc *handle);

PST_END_DECLS
#endif

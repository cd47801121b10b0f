/* gpus.h: GPUs as the runtime sees them: how many there are, and memory and events that processes share. The
 * functions are in CUDA's shared object (kernels/cuda/memory.cu), in one table. A process that opens it must
 * not fork afterwards. So the supervisor never opens it, and asks penstock-memory instead.
 *
 * Every function of the table returns PST_OK, or an error with its reason in why (PST_GPUS_WHY_BYTES).
 * Owner: the table is never freed. Threads: any. */
#ifndef PST_GPUS_H
#define PST_GPUS_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_GPUS_WHY_BYTES 320 /* a path, a CUDA error and its call */
#define PST_GPUS_MAX 16        /* the largest machine with one host has 16 */
#define PST_GPUS_MAJOR_MIN                                                                                   \
    8 /* of the compute capability: the kernels are built for 8.0 and what comes after it */
#define PST_IPC_BYTES 64 /* of a CUDA handle of memory or of an event */

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
    uint64_t bytes; /* of this structure: another number means that it is of another build */

    pst_rc (*count)(int *gpus, char *why); /* PST_OK with 0: a driver, but no GPU */
    pst_rc (*describe)(int gpu, struct pst_gpu *out, char *why);

    /* Device memory. A process other than the maker opens a handle, once (CUDA counts further opens), on the
     * memory's own device or on one GPU that reaches it. It closes the handle before the maker frees the
     * memory or ends. */
    pst_rc (*alloc)(int gpu, uint64_t bytes, void **at, char *why);
    pst_rc (*release)(int gpu, void *at, char *why);
    pst_rc (*share)(int gpu, void *at, struct pst_ipc *handle, char *why);
    pst_rc (*open)(int gpu, const struct pst_ipc *handle, void **at, char *why);
    pst_rc (*close)(int gpu, void *at, char *why);

    /* Makes host memory that is mapped in this process usable by the kernels of all its GPUs, at the same
     * address. Unpin it before you unmap it. */
    pst_rc (*pin)(int gpu, void *at, uint64_t bytes, char *why);
    pst_rc (*unpin)(int gpu, void *at, char *why);

    /* Events, of one process or shared by several. Another process opens a shared event on the maker's GPU.
     * Both free it. event_record records it in stream (a cudaStream_t of the event's GPU; NULL: the default
     * stream). event_wait makes the stream wait for the last record before the call, or the caller if host is
     * true; the caller waits no longer than for a queue (twin.h: PST_E_TIMEOUT). An event that was never
     * recorded counts as passed. */
    pst_rc (*event_new)(int gpu, bool shared, void **event, char *why);
    pst_rc (*event_free)(int gpu, void *event, char *why);
    pst_rc (*event_share)(int gpu, void *event, struct pst_ipc *handle, char *why);
    pst_rc (*event_open)(int gpu, const struct pst_ipc *handle, void **event, char *why);
    pst_rc (*event_record)(int gpu, void *event, void *stream, char *why);
    pst_rc (*event_wait)(int gpu, void *event, void *stream, bool host, char *why);

    /* Copies between any of these memories, also between two GPUs. The copy is done when it returns. */
    pst_rc (*copy)(int gpu, void *to, const void *from, uint64_t bytes, char *why);
};

/* What the shared object exports. */
#define PST_GPUS_SYMBOL "pst_gpus_cuda"
typedef const struct pst_gpus *(*pst_gpus_fn)(void);

/* The table. A process loads it once, from $PENSTOCK_CUDA, or else from libpenstock-cuda.so beside this
 * library. PST_E_UNSUPPORTED: there is no such file, or a library that it needs is missing. */
PST_API PST_MUST_USE pst_rc pst_gpus_open(const struct pst_gpus **gpus);

/* How many GPUs this machine has that can run the kernels; 0, with the reason in why, if there are none. The
 * first one that is too old ends the count, and why then names it. A child process finds out, once. So a
 * process that forks may call it. */
int pst_gpus_count(char why[PST_GPUS_WHY_BYTES]);
/* Can kernels of this GPU use the other GPU's memory? Always true for the same GPU. */
bool pst_gpus_reach(int gpu, int other);
/* From now on the two functions above answer for another machine, which has so many GPUs, at most
 * PST_GPUS_MAX. Bit k of peers[i]: GPU i can use the memory of GPU k. For commands that start nothing. */
PST_API void pst_gpus_assume(int gpus, const uint32_t *peers);

/* N of "cuda:N"; -1 for another kind of device. */
PST_API int pst_gpu_number(const char *device);

/* A handle as text and back. False: the text is no handle. */
#define PST_IPC_TEXT_BYTES (2 * PST_IPC_BYTES + 1)
PST_API void pst_ipc_text(const struct pst_ipc *handle, char out[PST_IPC_TEXT_BYTES]);
PST_API bool pst_ipc_parse(const char *text, struct pst_ipc *handle);

PST_END_DECLS
#endif

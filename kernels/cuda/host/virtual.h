/* virtual.h: what the files of the host build's runtime share: virtual GPUs, whose memory other processes
 * can open by CUDA's rules.
 *
 * The memory that a process takes of a virtual GPU lies in one memfd. Its first pages are a table of
 * blocks and of events. Another process finds it by the maker's process id and file descriptor, and sees
 * there what is still valid. When both have ended, nothing is left. Device memory is protected except
 * while streams work, so host code that touches it dies (not always at once). */
#ifndef PST_HOST_VIRTUAL_H
#define PST_HOST_VIRTUAL_H

#include "kernels/cuda/host/cuda_runtime.h"

#include <deque>
#include <mutex>
#include <vector>

enum {
    PST_HOST_GPUS = 8,         /* at most */
    PST_HOST_GPUS_DEFAULT = 2, /* if PENSTOCK_VIRTUAL_GPUS does not say how many */
    PST_HOST_BLOCKS_MAX = 8192,
    PST_HOST_EVENTS_MAX = 1024, /* for events between processes */
    PST_HOST_OPENERS_MAX = 32,  /* processes that have one block open */
};

/* Everything of the runtime except running kernels. */
std::recursive_mutex &pst_cu_host_lock();
cudaError_t pst_cu_host_keep(cudaError_t error); /* for cudaGetLastError */
int pst_cu_host_current();                       /* device of the calling thread */

/* A piece of work. Without `run` it is a gate, which opens when `ready` says so. */
struct pst_cu_host_work {
    std::function<void()> run;
    std::function<bool()> ready;
};

/* What was put into a stream while it was captured, and what it counts for. */
struct pst_cu_host_graph {
    std::vector<pst_cu_host_work> work;
    uint64_t counts[PST_HOST_COUNTS];
    int device;
    bool broken; /* a call meanwhile cannot be part of a graph */
};

struct pst_cu_host_stream {
    int device, priority;
    std::deque<pst_cu_host_work> work;
    uint64_t done, put;
    pst_cu_host_graph *captured; /* NULL: the stream is not captured now */
};

/* Puts work on the stream, or into the graph that it is captured in. Needs the lock. */
void pst_cu_host_put(pst_cu_host_stream *stream, pst_cu_host_work work);
/* For calls that CUDA refuses while a stream of the calling thread is captured: keeps that error, and spoils
 * the capture. False: none is captured. */
bool pst_cu_host_captures();

/* While one exists, device memory can be touched. Needs the lock. */
struct pst_cu_host_touch {
    pst_cu_host_touch();
    ~pst_cu_host_touch();
};

/* ---- events between processes, in the table of their maker's memory ------------------------------- */

struct pst_cu_host_shared_event {
    std::atomic<uint64_t> id; /* 0: none */
    std::atomic<uint64_t> recorded, done;
    std::atomic<uint64_t> wanted; /* somebody waits for the records up to this one */
};

/* Makes one; NULL: there are too many. Opens one; NULL: *error says why. */
pst_cu_host_shared_event *pst_cu_host_event_make(int device);
void pst_cu_host_event_end(pst_cu_host_shared_event *event); /* by its maker */
void pst_cu_host_event_handle(int device, const pst_cu_host_shared_event *event, cudaIpcEventHandle_t *out);
pst_cu_host_shared_event *pst_cu_host_event_open(const cudaIpcEventHandle_t *handle, cudaError_t *error);

/* Is it memory of a virtual GPU? The caller holds the lock, as whoever runs a kernel does. */
bool pst_cu_host_on_gpu(const void *at);
/* Is it memory of the host that no GPU can reach? */
bool pst_cu_host_pageable(const void *at);

/* Does this process exist? */
bool pst_cu_host_alive(int pid);

/* Reports a mistake that a GPU may let pass, and aborts. */
[[noreturn]] void pst_cu_host_wrong(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif

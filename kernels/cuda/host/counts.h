/* counts.h: what the host build counts for tests: the work that a batch costs, whatever the machine. C can
 * include it, too. Threads: any. */
#ifndef PST_HOST_COUNTS_H
#define PST_HOST_COUNTS_H

#include <stddef.h>
#include <stdint.h>

enum pst_cu_host_count {
    PST_HOST_LAUNCHES,
    PST_HOST_COPIES,    /* cudaMemcpyAsync and cudaMemsetAsync */
    PST_HOST_PAGEABLE,  /* copies of more than 64 KiB from or to pageable memory: CUDA may wait for the stream
                         */
    PST_HOST_WAITS,     /* of the host for a stream or an event */
    PST_HOST_ROWS,      /* the most rows that one warp of one launch has read, of PST_CU_READS_ROW */
    PST_HOST_POLLING,   /* the most blocks of one launch that polls NVMe queues */
    PST_HOST_ELSEWHERE, /* frees of a GPU's memory while the thread uses another GPU, which can make a
                           context there */
    PST_HOST_LIBRARY,   /* calls of CUB and cuBLASLt that compute; each launches kernels of its own */
    PST_HOST_QUESTIONS, /* to cuBLASLt's heuristic, for an algorithm */
    PST_HOST_BUS,    /* lines of 128 bytes, begun or whole, of the host's memory that copies, and kernels that
                        say so with PST_CU_CROSSES, read or write: transactions on the bus */
    PST_HOST_CALLS,  /* of the host that put work on a stream: launches, calls of libraries, copies and graphs
                      */
    PST_HOST_GRAPHS, /* launches of graphs. Their work counts as launches, copies and so on, each time */
    PST_HOST_GRAPHS_MADE,
    PST_HOST_COUNTS,
};

#ifdef __cplusplus
void pst_cu_host_counts_add(enum pst_cu_host_count which);
/* Adds what this thread counts from now on to `to`; NULL: to the counts again. */
void pst_cu_host_counts_divert(uint64_t *to);
/* Adds all of these. */
void pst_cu_host_counts_add_all(const uint64_t of[PST_HOST_COUNTS]);
void pst_cu_host_counts_raise(enum pst_cu_host_count which, uint64_t to);
/* Counts a copy. */
void pst_cu_host_counts_copy(const void *a, const void *b, size_t bytes);

/* For tests, by dlsym: the counts since the last call. */
extern "C" __attribute__((visibility("default"))) void pst_cu_host_counts(uint64_t out[PST_HOST_COUNTS]);
#endif

#endif

/* base.h: types, result codes and limits that every other file may use. It includes no other header of
 * Penstock. */
#ifndef PST_BASE_H
#define PST_BASE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define PST_BEGIN_DECLS extern "C" {
#define PST_END_DECLS }
#else
#define PST_BEGIN_DECLS
#define PST_END_DECLS
#endif

/* Code that host and device share (nvcc compiles it for both). */
#ifdef __CUDACC__
#define PST_HD __host__ __device__ __forceinline__
#else
#define PST_HD inline __attribute__((always_inline))
#endif

/* Libraries are built with -fvisibility=hidden, so exported symbols are marked with PST_API. */
#define PST_API __attribute__((visibility("default")))
#define PST_API_TEST PST_API /* exported only for the unit tests */
#define PST_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define PST_MUST_USE __attribute__((warn_unused_result))

/* The result of a function that can fail. Programmer errors assert instead. */
typedef enum pst_rc {
    PST_OK = 0,
    PST_E_ARG = -1,         /* the caller's or the user's value is wrong */
    PST_E_NOMEM = -2,       /* memory, or a memory limit */
    PST_E_IO = -3,          /* the operating system or a device reported an error */
    PST_E_FORMAT = -4,      /* a file or message does not have the expected format */
    PST_E_LIMIT = -5,       /* a value exceeds a named limit or the size of a buffer */
    PST_E_STATE = -6,       /* wrong order, already running, or already there */
    PST_E_TIMEOUT = -7,     /* a deadline passed */
    PST_E_UNSUPPORTED = -8, /* this machine or this build cannot do it */
    PST_E_INTERRUPTED = -9, /* a signal or a stop request ended it */
    PST_E_PEER = -10,       /* another process died or broke the protocol */
} pst_rc;

/* Limits, each with its reason. */
#define PST_NAME_MAX 64      /* a stage, port or parameter name: fits one table column */
#define PST_HOPS_MAX 8       /* sampled hops: deeper than any published GNN sampler */
#define PST_SECTOR 512       /* smallest logical block of an NVMe namespace */
#define PST_PAGE 4096        /* alignment of array data, which O_DIRECT and PRPs require */
#define PST_CACHE_LINE 64    /* alignment that avoids false sharing */
#define PST_STAGES_MAX 64    /* processes in one pipeline */
#define PST_PORTS_MAX 16     /* ports of one stage */
#define PST_PARAMS_MAX 64    /* parameters of one stage */
#define PST_INSTANCES_MAX 16 /* copies of one stage */
#define PST_SLOTS_MAX 1024   /* slots of one route */
#define PST_PATH_MAX 4096    /* bytes of a path with its end: the limit of Linux */
#define PST_REFS_MAX 64      /* slots that one frame may carry */

static inline uint64_t pst_align_up(uint64_t value, uint64_t align)
{
    assert(align > 0);
    return (value + align - 1) / align * align;
}

static inline int64_t pst_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t pst_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif

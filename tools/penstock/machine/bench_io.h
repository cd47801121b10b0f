/* bench_io.h: how fast a backend moves requests, and whether what it moved is right. Requests go in rounds:
 * the transfers of a round are timed, each to memory of its own; then every byte of every one is checked.
 * Threads that submit have a backend each (of drives: queue pairs), and begin and end their rounds together.
 * Owner: the caller. Threads: one. */
#ifndef PST_BENCH_IO_H
#define PST_BENCH_IO_H

#include "common/nvme/lanes.h"
#include "stages/lib/io/backend.h"

#define PST_BENCH_THREADS_MAX 64

struct pst_bench_io {
    const struct pst_io_backend_ops *backend;
    enum pst_nvme_way way; /* nvme, emulated */
    const char *path;      /* file, pread, mmap: created, with `span` bytes, if it does not exist */
    const char *drives;    /* nvme: PCI addresses; they are only read */
    const char *stack, *preset, *emulated; /* stack: the name of the way */
    double dilate, seconds;
    uint64_t bytes;   /* of a request */
    uint64_t span;    /* bytes of each SSD (or the file) that requests fall into */
    uint32_t threads; /* that submit, each as if it were alone */
    uint32_t depth, ssds, lanes, queues, workers; /* depth, lanes, queues: of each thread */
    bool write,
        burst; /* burst: rounds of `depth` requests, all at once, instead of `depth` always in flight */
};

struct pst_bench_io_result {
    uint64_t checked;     /* requests, all of whose bytes were right */
    uint64_t requests;    /* of them, those that were timed */
    double seconds;       /* of the timed parts, of one thread */
    double iops;          /* of all threads together */
    double cpu_ns;        /* of a request: the whole process's, its time in the kernel included */
    double latency_us[5]; /* mean, median, 99th and 99.9th percentile, most */
    /* Of a request: of nvme and emulated, time in the driver, but for looks that found nothing; of the
     * others, which wait asleep, cpu_ns. */
    double cycles, driver_ns;
    uint64_t commands, sq_doorbells, cq_doorbells, retries, resets; /* of nvme and emulated */
};

PST_MUST_USE pst_rc pst_bench_io(const struct pst_bench_io *options, struct pst_bench_io_result *result);

#endif

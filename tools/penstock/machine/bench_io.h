/* bench_io.h: measures how fast a backend moves requests, and checks what it moved. Requests go in rounds:
 * the transfers of a round are timed, each to its own memory; then every byte is checked. Each submitting
 * thread has its own backend or queue pairs; threads begin and end their rounds together. Owner: the caller.
 * Threads: one. */
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
    double bus_bytes_per_s; /* emulated: of all SSDs together; 0: no limit */
    uint64_t bytes;         /* of a request */
    uint64_t span;          /* bytes of each SSD, or of the file, in which requests lie */
    uint32_t threads;       /* that submit */
    uint32_t depth, ssds, lanes, queues, workers; /* depth, lanes and queues are those of each thread */
    bool write, burst; /* burst: rounds of `depth` requests at once, instead of `depth` always in flight */
};

struct pst_bench_io_result {
    uint64_t checked;     /* requests whose bytes were all right */
    uint64_t requests;    /* requests that were timed */
    double seconds;       /* of the timed parts of one thread */
    double iops;          /* requests a second of all threads together */
    double cpu_ns;        /* processor time of a request, with the kernel's and of the whole process */
    double latency_us[5]; /* mean, median, 99th and 99.9th percentile, maximum */
    /* Time of a request in the driver, without polls that found nothing (nvme, emulated). Other backends
     * sleep while they wait; for them this is cpu_ns. */
    double cycles, driver_ns;
    uint32_t lanes_needed; /* emulated, with a preset: Hyperion, equation 2, for driver_ns; 0: not known */
    uint64_t commands, sq_doorbells, cq_doorbells, retries, resets; /* of nvme and emulated */
};

PST_MUST_USE pst_rc pst_bench_io(const struct pst_bench_io *options, struct pst_bench_io_result *result);

#endif

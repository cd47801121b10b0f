/* backend.h: the interface of the backends, which execute reads and writes: io_uring ("file"), threads
 * ("pread"), a memory mapping ("mmap"), Penstock's NVMe driver ("nvme", "emulated"), or a wrapper that
 * injects faults into one of them. Posting, ringing and polling are separate, so that one system call serves
 * many operations.
 *
 * Owner: the engine opens and closes a backend and owns the operations. A backend holds an operation from
 * post until poll returns it. Files and regions outlive the backend. Threads: one, the engine's; a backend's
 * own threads stay inside it. */
#ifndef PST_BACKEND_H
#define PST_BACKEND_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "common/base.h"
#include "common/nvme/lanes.h"
#include "common/slots/request.h"

struct pst_dataset;

#define PST_IO_FDS_MAX 2
#define PST_IO_NOTE_BYTES 512
#define PST_IO_WHY_BYTES 192
#define PST_IO_GROUP_REQUESTS 16384u /* most requests of a group */

/* A file, opened once for buffered and once for direct I/O. */
struct pst_io_file {
    char path[PST_PATH_MAX];
    int fd;             /* buffered; -1: not open */
    int direct;         /* with O_DIRECT; -1: not wanted, or the file system has none */
    uint32_t block;     /* direct I/O needs offset and length aligned to this */
    uint32_t mem_align; /* direct I/O needs memory aligned to this */
    bool writable;
};

/* Opens path. If direct I/O is wanted but not possible, note says why; otherwise it is "". */
PST_API PST_MUST_USE pst_rc pst_io_file_open(struct pst_io_file *file, const char *path, bool direct,
                                             bool writable, char note[PST_IO_NOTE_BYTES]);
PST_API void pst_io_file_close(struct pst_io_file *file);

struct pst_io_op {
    uint32_t file;
    bool write, direct;
    uint64_t at; /* byte in the file */
    struct iovec *iov;
    int niov;
    uint64_t bytes;         /* sum over iov */
    int64_t result;         /* set before poll returns it: bytes moved, or -errno */
    struct pst_io_op *next; /* the backend's, while it holds the operation */
    uint64_t due_ns;        /* of the fault injector */
    uint32_t pending;       /* of nvme.c: requests in flight; cut: all of them were made */
    bool cut;
    char why[PST_IO_WHY_BYTES]; /* more than errno about a negative result; "" if the backend knows no more */
};

/* Requests of one table, at most pst_io_backend.group_requests, for a backend that takes tables. It checks
 * the requests and carries out those that it can. */
struct pst_io_group {
    uint32_t index; /* number of the group; less than pst_io_backend.groups */
    char *slot;
    uint64_t slot_bytes, at; /* at: byte of the slot with the first request */
    uint32_t n;
    /* true: all groups of its slot are posted, or will be soon; a GPU waits for it before it completes */
    const atomic_bool *whole;
    uint32_t *left; /* room for n */
    /* set before poll_groups returns the group */
    uint32_t nleft;  /* left[0..nleft): requests, counted from `at`, that the engine must carry out */
    uint32_t bad;    /* 1 + the number of a wrong request; then nothing was moved. 0: none is wrong */
    uint32_t failed; /* of those left: how many the backend tried */
    /* of what the backend carried out */
    uint64_t rows, row_bytes_wanted, commands, bytes, copied_bytes, merged;
    char why[PST_IO_WHY_BYTES]; /* why the backend cannot go on; "" if it can */
    struct pst_io_group *next;
};

struct pst_io_faults {
    double error_rate; /* share of operations that fail with EIO */
    double short_rate; /* share of operations that move too little */
    int64_t delay_us;  /* added to every completion */
    uint64_t seed;
    int32_t bad_file; /* in this file, operations on [bad_at, bad_at + bad_bytes) always fail; -1: no file */
    uint64_t bad_at, bad_bytes;
};

/* A modelled bus that the data of files pass. */
struct pst_io_bus {
    /* Books bytes, and returns the time when they have passed; NULL: there is no bus. */
    uint64_t (*book)(void *to, uint64_t bytes, uint64_t now_ns);
    void *to;
};

/* Settings of "nvme" and "emulated". */
struct pst_io_nvme_config {
    const char *stack; /* "async", "sync", "batch" */
    /* nvme: PCI addresses, separated by commas; emulated: files that `penstock store` wrote, or NULL or "":
     * the dataset's own files are the drives' content */
    const char *drives;
    const char *preset;   /* emulated: the modelled drive */
    const char *emulated; /* emulated: more of its configuration, as JSON text; NULL or "": none */
    double dilate;
    const char *bus; /* emulated: the file with the bus that their data pass; NULL: none */
    uint64_t bus_at; /* byte of it */
    double bus_bytes_per_s;
    uint32_t ssds; /* emulated; `drives`, if it names files, says how many there are */
    uint32_t queues, lanes, timeout_ms;
    const char *gpu;                   /* whose kernels drive the queues: "cuda:N"; NULL: the CPU does */
    bool writable;                     /* with gpu: requests may write */
    uint64_t coalesce_bytes;           /* with gpu: most bytes of a read that several requests share */
    const struct pst_dataset *dataset; /* it must be the one on the drives that `drives` names */
    bool topology;                     /* these drives must hold the topology, too */
};

struct pst_io_config {
    struct pst_io_file *files; /* zeroed by the caller, who may set `writable` */
    uint32_t nfiles;
    const struct pst_request_array *arrays; /* nvme and emulated: the arrays in the files, by number */
    int depth;                              /* most operations held at once */
    /* nvme and emulated: most commands of whole tables in flight; 0: as many as the queues hold */
    uint32_t commands;
    bool whole_groups; /* nvme and emulated: the queues are to hold whole groups, if the drives can */
    int threads;       /* pread */
    const struct iovec *regions;
    int nregions;
    struct pst_io_faults faults;           /* of the fault injector */
    struct pst_io_bus bus;                 /* file, pread and mmap */
    const struct pst_io_nvme_config *nvme; /* NULL: "nvme" and "emulated" will not be used */
};

/* Counts of drives that we drive ourselves. */
struct pst_io_driven {
    uint64_t gpu_commands, cpu_commands;
    uint64_t queues; /* queue pairs */
    uint64_t waves;  /* on a CPU: submissions, each of at most one doorbell a queue */
    uint64_t sq_doorbells, cq_doorbells;
    uint64_t retries, aborts, resets; /* by the driver; the engine counts its own retries */
    double lane_s;                    /* stack sync: the time that lanes held requests, summed over lanes */
    uint64_t turns;                   /* how often the queues went from the GPU to the CPU */
    uint32_t drives;
    double iops, bytes_per_s, latency_s; /* of each emulated drive, as it is modelled; 0: no limit */
};

struct pst_io_backend;

struct pst_io_backend_ops {
    const char *name;
    bool copies; /* copies every byte once more by the CPU */
    bool direct; /* uses pst_io_file.direct */
    bool dma;    /* memory must be shared and in the config's regions; gaps are not read over */
    /* note: a warning about what works less well than it could; "" if nothing does. */
    pst_rc (*open)(struct pst_io_backend *b, const struct pst_io_config *config,
                   char note[PST_IO_NOTE_BYTES]);
    void (*post)(struct pst_io_backend *b, struct pst_io_op *op);
    pst_rc (*ring)(struct pst_io_backend *b);
    int (*poll)(struct pst_io_backend *b, struct pst_io_op **done, int max);
    /* Rings, and sleeps until poll would return something or the time is over, for a caller that waits for
     * nothing else. NULL: pst_io_wait does the same with ring and fds. */
    pst_rc (*wait)(struct pst_io_backend *b, int ms);
    /* Descriptors that are readable when poll would return something; returns their number. */
    int (*fds)(const struct pst_io_backend *b, int fds[PST_IO_FDS_MAX]);
    void (*close)(struct pst_io_backend *b);
    /* For a backend with groups. Ring also tells it that a slot has become whole. */
    void (*post_group)(struct pst_io_backend *b, struct pst_io_group *group);
    int (*poll_groups)(struct pst_io_backend *b, struct pst_io_group **done, int max);
    /* Counts for the report; valid while nothing is in flight. */
    void (*count)(struct pst_io_backend *b, struct pst_io_driven *driven);
};

struct pst_io_backend {
    const struct pst_io_backend_ops *ops;
    void *impl;
    uint32_t groups, group_requests; /* set by open: most groups at once, and most requests of a group; 0: it
                                        takes no groups */
};

/* The names of all backends. "auto" means file, or pread if io_uring cannot be used. */
#define PST_IO_BACKEND_NAMES "file|pread|mmap|nvme|emulated"
/* The ways in which nvme and emulated can drive queues. */
#define PST_IO_STACK_NAMES PST_NVME_WAY_NAMES

extern PST_API const struct pst_io_backend_ops pst_io_uring_ops;
extern PST_API const struct pst_io_backend_ops pst_io_pread_ops;
extern PST_API const struct pst_io_backend_ops pst_io_mmap_ops;
extern PST_API const struct pst_io_backend_ops pst_io_nvme_ops;
extern PST_API const struct pst_io_backend_ops pst_io_emulated_ops;

/* The array that lies in this file. */
const struct pst_request_array *pst_io_array_in(const struct pst_request_array *arrays, uint32_t file);

/* Calls b's wait, or does the same with its ring and fds. */
PST_API PST_MUST_USE pst_rc pst_io_wait(struct pst_io_backend *b, int ms);

/* Finds a backend by name, but not "auto". NULL, with pst_fail: there is none. */
PST_API const struct pst_io_backend_ops *pst_io_backend_named(const char *name);

/* Opens config->nfiles paths (NULL or "": no file) into config->files, and over them the backend that is
 * named `want`. A file can be written if `writable`, or its own flag, says so. If a fault is asked for, or
 * files have a bus, wraps the fault injector around it. notes gets a line for each thing that works less well
 * than it could. On failure the files are closed. */
PST_API PST_MUST_USE pst_rc pst_io_choose(struct pst_io_backend *b, const struct pst_io_config *config,
                                          const char *want, const char *const *paths, bool direct,
                                          bool writable, char *notes, size_t note_bytes);
PST_API void pst_io_files_close(struct pst_io_file *files, uint32_t n);

/* Wraps the fault injector around a backend, and, if it reads files, the bus. On failure the backend stays as
 * it is. */
PST_MUST_USE pst_rc pst_io_faulty_wrap(struct pst_io_backend *b, const struct pst_io_config *config);

#endif

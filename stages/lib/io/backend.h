/* backend.h: what carries out reads and writes: io_uring ("file"), threads ("pread"), a mapping ("mmap"),
 * our own NVMe driver ("nvme", "emulated"), or a decorator around one of them that injects faults. Posting,
 * ringing and polling are separate, so that one system call serves many operations.
 *
 * Owner: the engine opens and closes a backend and owns the operations; a backend holds an operation from
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

/* A file, opened once for buffered and once for direct use. */
struct pst_io_file {
    char path[4096];
    int fd;             /* buffered; -1: not open */
    int direct;         /* O_DIRECT; -1: the file system has none, or it was not wanted */
    uint32_t block;     /* alignment of offset and length for direct use */
    uint32_t mem_align; /* alignment of memory for direct use */
    bool writable;
};

/* Opens path; note says why direct use is not possible if it was wanted and is not ("" otherwise). */
PST_MUST_USE pst_rc pst_io_file_open(struct pst_io_file *file, const char *path, bool direct, bool writable,
                                     char note[PST_IO_NOTE_BYTES]);
void pst_io_file_close(struct pst_io_file *file);

struct pst_io_op {
    uint32_t file;
    bool write, direct;
    uint64_t at; /* byte in the file */
    struct iovec *iov;
    int niov;
    uint64_t bytes;         /* of iov in all */
    int64_t result;         /* set before poll returns it: bytes moved, or -errno */
    struct pst_io_op *next; /* the backend's, while it holds the operation */
    uint64_t due_ns;        /* the decorator's */
    uint32_t pending;       /* nvme.c's: requests in flight; all have been made when cut */
    bool cut;
    char
        why[PST_IO_WHY_BYTES]; /* of a negative result, where the backend knows more than errno; else empty */
};

/* Up to pst_io_backend.group_requests requests of one table, for a backend that takes them as they stand: it
 * checks them, and brings what it can. */
struct pst_io_group {
    uint32_t index; /* of the engine's: below pst_io_backend.groups */
    char *slot;
    uint64_t slot_bytes, at; /* of the slot: the first request */
    uint32_t n;
    const atomic_bool *whole; /* all of its slot's groups have been posted, or will be soon */
    uint32_t *left;           /* room for n */
    /* set before poll_groups returns it */
    uint32_t nleft; /* requests, counted from `at`, that the engine is to bring: left[0..nleft) */
    uint32_t bad;   /* 1 + a request that is wrong: nothing was moved; 0: none */
    uint64_t rows, row_bytes_wanted, commands, bytes, copied_bytes, merged; /* of what it brought */
    char why[PST_IO_WHY_BYTES]; /* the backend is broken; else empty */
    struct pst_io_group *next;
};

struct pst_io_faults {
    double error_rate; /* of operations that fail with EIO */
    double short_rate; /* of operations that move less than they should */
    int64_t delay_us;  /* added to every completion */
    uint64_t seed;
    int32_t bad_file; /* operations that touch [bad_at, bad_at + bad_bytes) of it always fail; -1: none */
    uint64_t bad_at, bad_bytes;
};

/* For "nvme" and "emulated". */
struct pst_io_nvme_config {
    const char *stack;    /* "async", "sync", "batch" */
    const char *drives;   /* nvme: PCI addresses with commas between */
    const char *preset;   /* emulated: how fast */
    const char *emulated; /* emulated: more of its configuration, as JSON text; NULL or "": none */
    double dilate;
    uint32_t ssds; /* emulated */
    uint32_t queues, lanes, timeout_ms;
    const char *gpu;                   /* whose kernels drive the queues: "cuda:N"; NULL: the CPU does */
    bool writable;                     /* with gpu: requests may write */
    uint64_t coalesce_bytes;           /* with gpu: of a read that several requests share */
    const struct pst_dataset *dataset; /* nvme: it must be the one on the drives */
};

struct pst_io_config {
    struct pst_io_file *files;
    uint32_t nfiles;
    const struct pst_request_array *arrays; /* nvme and emulated: what lies in the files, by number */
    int depth;                              /* operations held at once */
    int threads;                            /* pread */
    const struct iovec *regions;
    int nregions;
    struct pst_io_faults faults;           /* the decorator's */
    const struct pst_io_nvme_config *nvme; /* NULL: neither "nvme" nor "emulated" will be asked for */
};

/* Of drives that we drive ourselves. */
struct pst_io_driven {
    uint64_t gpu_commands, cpu_commands;
    uint64_t sq_doorbells, cq_doorbells;
    uint64_t retries, aborts, resets; /* by the driver itself; the engine repeats besides */
    uint64_t turns;                   /* how often the queues went from the GPU to the CPU */
};

struct pst_io_backend;

struct pst_io_backend_ops {
    const char *name;
    bool copies; /* moves every byte once more, through the CPU */
    bool direct; /* makes use of pst_io_file.direct */
    bool dma;    /* memory must be shared and in config's regions; a gap costs as much as a row */
    /* note: what works less well than it could, and why ("" if nothing). */
    pst_rc (*open)(struct pst_io_backend *b, const struct pst_io_config *config,
                   char note[PST_IO_NOTE_BYTES]);
    void (*post)(struct pst_io_backend *b, struct pst_io_op *op);
    pst_rc (*ring)(struct pst_io_backend *b);
    int (*poll)(struct pst_io_backend *b, struct pst_io_op **done, int max);
    /* Rings, and sleeps until poll has news or so many milliseconds are over: for who waits for nothing else.
     * NULL: the same by ring and fds. */
    pst_rc (*wait)(struct pst_io_backend *b, int ms);
    int (*fds)(const struct pst_io_backend *b, int fds[PST_IO_FDS_MAX]); /* readable when poll has news */
    void (*close)(struct pst_io_backend *b);
    /* Of a backend with groups; ring also tells it that a slot has become whole. */
    void (*post_group)(struct pst_io_backend *b, struct pst_io_group *group);
    int (*poll_groups)(struct pst_io_backend *b, struct pst_io_group **done, int max);
    /* How it went, for the report; valid while nothing is in flight. */
    void (*count)(struct pst_io_backend *b, struct pst_io_driven *driven);
};

struct pst_io_backend {
    const struct pst_io_backend_ops *ops;
    void *impl;
    uint32_t groups,
        group_requests; /* set by open: how many it holds at once, and how large; 0: it takes none */
};

/* The names of all of them; "auto" is file, or pread if io_uring cannot be used. */
#define PST_IO_BACKEND_NAMES "file|pread|mmap|nvme|emulated"
/* The ways in which nvme and emulated can drive queues. */
#define PST_IO_STACK_NAMES PST_NVME_WAY_NAMES

extern const struct pst_io_backend_ops pst_io_uring_ops;
extern const struct pst_io_backend_ops pst_io_pread_ops;
extern const struct pst_io_backend_ops pst_io_mmap_ops;
extern const struct pst_io_backend_ops pst_io_nvme_ops;
extern const struct pst_io_backend_ops pst_io_emulated_ops;

/* The array that lies in this file. */
const struct pst_request_array *pst_io_array_in(const struct pst_request_array *arrays, uint32_t file);

/* b's wait, or the same by its ring and fds. */
PST_MUST_USE pst_rc pst_io_wait(struct pst_io_backend *b, int ms);

/* NULL with pst_fail: there is none of that name. Not for "auto". */
const struct pst_io_backend_ops *pst_io_backend_named(const char *name);

/* Opens paths (config->nfiles; NULL or "": none) into config->files, and the backend named want ("auto":
 * file, else pread) over them, with the fault injector around it if any fault is asked for. notes gets a line
 * for whatever works less well than it could. On failure the files are closed. */
PST_MUST_USE pst_rc pst_io_choose(struct pst_io_backend *b, const struct pst_io_config *config,
                                  const char *want, const char *const *paths, bool direct, bool writable,
                                  char *notes, size_t note_bytes);
void pst_io_files_close(struct pst_io_file *files, uint32_t n);

/* Puts the fault injector around inner, which it then owns. Leaves inner alone on failure. */
PST_MUST_USE pst_rc pst_io_faulty_wrap(struct pst_io_backend *b, const struct pst_io_config *config);

#endif

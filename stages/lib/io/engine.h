/* engine.h: the disk engine. It converts tables of requests (request.h) to few, large, aligned operations,
 * and reports when a slot is complete. It does not depend on frames and ports.
 *
 * Requests are sorted by file and offset. Adjacent rows are merged into one vectored operation that reads
 * each row straight into its slot. Small gaps between rows are read and dropped. Rows that are not aligned to
 * the device's blocks are read, with the blocks around them, into a buffer and copied; rows that share blocks
 * share the read. Requests of one table are carried out in any order.
 *
 * Owner: pst_disk_new allocates; pst_disk_free waits for what is in flight, then frees. Tickets, and the
 * memory of tables and rows, belong to the caller and must outlive their requests. Threads: one. */
#ifndef PST_ENGINE_H
#define PST_ENGINE_H

#include "common/store/array_id.h"
#include "common/store/store.h"
#include "stages/lib/io/backend.h"

struct pst_disk_config {
    const char *backend; /* "auto", or one of PST_IO_BACKEND_NAMES */
    /* by enum pst_array_id, and then those of the run; filled by pst_disk_config_add */
    struct pst_request_array arrays[PST_REQUEST_ARRAYS_MAX];
    const char *names[PST_REQUEST_ARRAYS_MAX];
    int types;                                  /* of vertices, whose features are PST_REQUEST_OF_TYPE */
    const char *paths[PST_REQUEST_FILES_MAX];   /* of the files of these arrays */
    bool writable_files[PST_REQUEST_FILES_MAX]; /* besides `writable`, which is about all files */
    uint32_t nfiles;
    int depth;   /* most operations in flight; PST_AUTO: what keeps the drives busy */
    int threads; /* pread */
    int retries; /* of one operation */
    bool direct, writable;
    bool complete_parts;     /* a GPU waits after each table, not after the last table of a slot */
    uint64_t coalesce_bytes; /* most bytes of an operation */
    uint64_t gap_bytes;      /* rows at most this far apart are read by one operation; 0: no gap is read */
    uint32_t tables_max;     /* most tables that wait at once */
    const struct iovec *regions;
    int nregions;
    struct pst_io_faults faults;
    struct pst_io_bus bus;          /* that reads and writes of files pass */
    struct pst_io_nvme_config nvme; /* the engine fills its `writable` and `coalesce_bytes` */
};

/* Adds an array that requests may name. It lies in n files: row v is row v / n of file v mod n, and row 0 of
 * each file begins at byte data_at. wanted_bytes of each row are data. An array without rows is not added.
 * The paths must outlive the engine. */
PST_API void pst_disk_config_add(struct pst_disk_config *c, enum pst_array_id id, const char *const *paths,
                                 uint32_t n, uint64_t data_at, uint64_t rows, uint64_t row_bytes,
                                 uint64_t wanted_bytes);
/* Adds an array of the run, which requests may write: a file of whole rows. PST_E_LIMIT: there are too many.
 * PST_E_FORMAT: the file is not made of whole rows. name and path must outlive the engine. */
PST_API PST_MUST_USE pst_rc pst_disk_config_add_run(struct pst_disk_config *c, const char *name,
                                                    const char *path, uint64_t row_bytes);
/* Whether the backend reads raw drives, or files, to which `penstock store` has written the dataset. */
PST_API bool pst_disk_on_drives(const struct pst_disk_config *c);
/* Adds every array of a dataset. The engine opens their files when it is made: at most PST_ARRAY_COUNT +
 * PST_DATASET_FEATURE_FILES_MAX - 1. If features are read from raw drives (pst_disk_on_drives), only the
 * first of their files is opened, and a list of files sets the number of emulated drives, if that is 1. */
PST_API void pst_disk_config_add_all(struct pst_disk_config *c, const struct pst_dataset *ds);

struct pst_disk_stats {
    uint64_t requests; /* operations given to the backend, with repeats */
    uint64_t bytes;    /* moved by these operations */
    uint64_t rows;     /* rows of all requests */
    uint64_t row_bytes_wanted;
    uint64_t copied_bytes; /* copied after a transfer, or instead of one */
    uint64_t retries;
    uint64_t handed;    /* requests that kernels left to the CPU */
    uint64_t merged;    /* rows that came with the operation, or the command, of another */
    double active_s;    /* time with something in flight */
    double in_flight_s; /* operations in flight, integrated over time; divided by active_s it is their mean
                           number */
    double starved_s;   /* time in which fewer than depth were in flight and no request waited */
};

/* How many may be in flight, and why. */
struct pst_disk_depth {
    int operations;
    bool automatic;
    uint32_t commands; /* of whole tables, on drives; 0: as many as the queues hold */
    uint32_t needed;   /* commands that keep the drives busy (Little's law); 0: not known */
    char why[96];
};

/* What is in flight for one slot. Zero it before first use. */
struct pst_disk_ticket {
    uint32_t tables;   /* that are not yet operations, or are with the backend */
    uint32_t ops;      /* in flight */
    atomic_bool whole; /* the last table was added; a backend with groups reads this */
};

static inline bool pst_disk_idle(const struct pst_disk_ticket *t)
{
    return t->tables == 0 && t->ops == 0;
}

struct pst_disk;

/* Makes an engine. note gets a line for each thing that works less well than it could. */
PST_API PST_MUST_USE pst_rc pst_disk_new(struct pst_disk **out, const struct pst_disk_config *config,
                                         char *note, size_t note_bytes);
PST_API void pst_disk_free(struct pst_disk *d);

PST_API const char *pst_disk_backend(const struct pst_disk *d); /* the name of the backend that runs */
PST_API bool pst_disk_direct(const struct pst_disk *d); /* true: all files are read past the page cache */
PST_API const struct pst_disk_stats *pst_disk_stats(const struct pst_disk *d);
/* Counts of our own driver. False: the backend has no drives of its own. */
PST_API bool pst_disk_driven(struct pst_disk *d, struct pst_io_driven *driven);
PST_API const struct pst_disk_depth *pst_disk_depth(const struct pst_disk *d);
/* The gap that is read over: config.gap_bytes, or 0 if the backend reads no gaps. The second changes it, for
 * operations that are made from then on; `bytes` is at most the limit of config.gap_bytes. */
PST_API uint64_t pst_disk_gap(const struct pst_disk *d);
PST_API void pst_disk_gap_set(struct pst_disk *d, uint64_t bytes);
/* Whether the backend can read gaps: a mapping cannot, and a drive's command has one piece of memory. */
PST_API bool pst_disk_gap_read(const struct pst_disk *d);
PST_API int pst_disk_in_flight(const struct pst_disk *d);
PST_API int pst_disk_fds(const struct pst_disk *d, int fds[PST_IO_FDS_MAX]);

/* Queues `count` requests at byte table_at of a slot. PST_E_FORMAT: the table does not fit the slot.
 * PST_E_LIMIT: tables_max tables wait already. The requests are checked later, when they are carried out. */
PST_API PST_MUST_USE pst_rc pst_disk_add(struct pst_disk *d, struct pst_disk_ticket *ticket, void *slot,
                                         uint64_t slot_bytes, uint64_t table_at, uint64_t count);

/* Says that the slot's last table was added. Only then does a GPU wait for its completions. */
PST_API void pst_disk_whole(struct pst_disk *d, struct pst_disk_ticket *ticket);

/* Does all that can be done without waiting. Any error is final, and every later call returns it. It names
 * file, bytes, and the vertex (for features) or the request's tag. */
PST_API PST_MUST_USE pst_rc pst_disk_pump(struct pst_disk *d);

/* Sleeps until something has completed, but at most `ms` milliseconds. */
PST_API_TEST void pst_disk_sleep(struct pst_disk *d, int64_t ms);

/* Pumps until nothing is queued or in flight. PST_E_TIMEOUT: that took longer. */
PST_API PST_MUST_USE pst_rc pst_disk_wait(struct pst_disk *d, int timeout_ms);

#endif

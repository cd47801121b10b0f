/* engine.h: the disk stage without its stage: tables of requests (request.h) become few, large, aligned
 * operations, and completions become "this slot is whole". Knows nothing of frames and ports.
 *
 * Requests are sorted by place in the file, and neighbours are merged into one vectored operation that reads
 * each row straight into its slot; what lies between rows that are near enough is read and dropped. Rows that
 * are not aligned to the device's blocks are read, with the blocks around them, into a buffer and copied out;
 * rows that share blocks share the read. Requests of one table are carried out in any order.
 *
 * Owner: pst_disk_new allocates; pst_disk_free waits for what is in flight, then frees. Tickets and the
 * memory that tables and requests lie in are the caller's and must outlive their requests. Threads: one. */
#ifndef PST_ENGINE_H
#define PST_ENGINE_H

#include "common/store/array_id.h"
#include "common/store/store.h"
#include "stages/lib/io/backend.h"

struct pst_disk_config {
    const char *backend; /* "auto", "file", "pread", "mmap", "nvme" or "emulated" */
    struct pst_request_array arrays[PST_REQUEST_ARRAYS_MAX]; /* by enum pst_array_id: pst_disk_config_add */
    const char *paths[PST_REQUEST_FILES_MAX];                /* of the files in which they lie */
    uint32_t nfiles;
    int depth;   /* operations in flight */
    int threads; /* pread */
    int retries; /* of one operation */
    bool direct, writable;
    bool complete_parts;     /* a GPU waits for each table, not for all of a slot's */
    uint64_t coalesce_bytes; /* largest operation */
    uint64_t gap_bytes;      /* read over gaps this large rather than make two operations; 0: never */
    uint32_t tables_max;     /* tables waiting at once */
    const struct iovec *regions;
    int nregions;
    struct pst_io_faults faults;
    struct pst_io_nvme_config nvme; /* for the backends "nvme" and "emulated"; `writable` and `coalesce_bytes`
                                       are the engine's to fill */
};

/* Requests may name this array from now on. It lies in n files; row 0 of each begins at byte data_at. Row v
 * is row v / n of file v mod n. Nothing if it has no rows. wanted_bytes: of each row, how many are data. The
 * paths must live as long as the engine. */
void pst_disk_config_add(struct pst_disk_config *c, enum pst_array_id id, const char *const *paths,
                         uint32_t n, uint64_t data_at, uint64_t rows, uint64_t row_bytes,
                         uint64_t wanted_bytes);
/* The same for every array of a dataset: at most PST_ARRAY_COUNT + PST_DATASET_FEATURE_FILES_MAX - 1 files,
 * which the engine opens when it is made. on_drives: features lie on raw drives, with stripes of their own;
 * of the files that have them only the first is opened. */
void pst_disk_config_add_all(struct pst_disk_config *c, const struct pst_dataset *ds, bool on_drives);

struct pst_disk_stats {
    uint64_t requests; /* operations given to the backend, repeats included */
    uint64_t bytes;    /* moved by them */
    uint64_t rows;     /* asked for */
    uint64_t row_bytes_wanted;
    uint64_t copied_bytes; /* by the CPU, after the transfer or instead of it */
    uint64_t retries;
    uint64_t handed;    /* requests that a GPU left to the CPU */
    uint64_t merged;    /* pieces that rode along in another's operation, requests in another's command */
    double active_s;    /* something was in flight */
    double in_flight_s; /* operations in flight, over time: divided by active_s, their mean number */
    double starved_s;   /* fewer than depth were in flight, and no request waited */
};

/* Everything in flight for one slot. Zero it before first use. */
struct pst_disk_ticket {
    uint32_t tables;   /* not yet turned into operations, or with the backend */
    uint32_t ops;      /* in flight */
    atomic_bool whole; /* the last table has been added: a backend that takes tables looks at it */
};

static inline bool pst_disk_idle(const struct pst_disk_ticket *t)
{
    return t->tables == 0 && t->ops == 0;
}

struct pst_disk;

/* note gets, line by line, what works less well than it could, and why; note_bytes large. */
PST_MUST_USE pst_rc pst_disk_new(struct pst_disk **out, const struct pst_disk_config *config, char *note,
                                 size_t note_bytes);
void pst_disk_free(struct pst_disk *d);

const char *pst_disk_backend(const struct pst_disk *d); /* which one runs: "file", ... */
bool pst_disk_direct(const struct pst_disk *d);         /* past the page cache, for every array */
const struct pst_disk_stats *pst_disk_stats(const struct pst_disk *d);
/* False: the backend drives no drives of its own. */
bool pst_disk_driven(struct pst_disk *d, struct pst_io_driven *driven);
int pst_disk_in_flight(const struct pst_disk *d);
int pst_disk_fds(const struct pst_disk *d, int fds[PST_IO_FDS_MAX]);

/* Queues `count` requests at byte table_at of a slot. PST_E_FORMAT if the table is not in the slot,
 * PST_E_LIMIT if tables_max wait already. The requests themselves are checked when their turn comes. */
PST_MUST_USE pst_rc pst_disk_add(struct pst_disk *d, struct pst_disk_ticket *ticket, void *slot,
                                 uint64_t slot_bytes, uint64_t table_at, uint64_t count);

/* The slot's last table has been added: a GPU waits for completions from now on (before, it goes on
 * submitting). */
void pst_disk_whole(struct pst_disk *d, struct pst_disk_ticket *ticket);

/* Does all that can be done without waiting. Any error is final: it names the vertex (for features; the
 * request's tag otherwise), file and bytes, and every later call returns it. */
PST_MUST_USE pst_rc pst_disk_pump(struct pst_disk *d);

/* Sleeps until something has completed or `ms` milliseconds have passed. */
void pst_disk_sleep(struct pst_disk *d, int64_t ms);

/* Pumps until nothing is queued or in flight; PST_E_TIMEOUT after so many milliseconds. */
PST_MUST_USE pst_rc pst_disk_wait(struct pst_disk *d, int timeout_ms);

#endif

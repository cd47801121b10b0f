/* nvme.h: NVMe queues driven from a GPU: rows that a batch misses are asked for, and come, without the host.
 * The queues are common/nvme/queue.h's, as the host's stack (common/nvme/stack/stack.h) drives them; that
 * stack is the CPU's twin of this, which is why this has a table of its own and no lines in twin.h's list:
 * who samples or trains needs no NVMe, and kernels/cpu cannot know controllers.
 *
 *   A drive has some controllers' queue pairs, and room for `batches` groups of up to `most` commands each. A
 * batch's commands (struct pst_nvme_io) are written by `aim` or copied to `ios`; `submit` sends them, one way
 * or another; `complete` waits for them, on the device, and writes one record into pinned memory. What does
 * not fit the queues goes in waves, from the device too. Nothing waits for the host.
 *
 *   async (Hyperion, section III-A)  submit: one block counts by queue, scans, scatters, writes with P_s
 * threads, rings one doorbell a queue. complete: blocks take the queues' completions as they come, a warp a
 * run of positions, one doorbell for each take; batches may be submitted before others are completed.
 *   batch (Legend, section 5)  positions are known beforehand: the caller has grouped the commands by queue
 * and says in `begin` where each queue's begin. submit: any number of blocks write, none waits for another;
 * then one doorbell a queue. complete: looks at a wave's last completion, then takes all of it at once.
 *   sync (GIDS; BaM)  a warp a command: its leader takes the queue's lock, writes, rings, and takes what has
 * come until its own has, while the other lanes wait. submit does all of it.
 *
 * Tables. `aim_table` takes a table of disk requests (common/slots/request.h) as it stands in its slot, which
 * another process wrote: each request is read once, judged, and becomes a command, or is left to the host
 * (what one command cannot do), or is wrong: then nothing of the table is sent. Data land in the slot; of
 * rows that do not fill blocks, the blocks around them land in `staging`, and `complete` copies the rows from
 * there. Requests whose blocks are the same, overlap or follow one another share a command, up to
 * `merge_bytes`; what becomes of it, becomes of all of them.
 *
 * Faults: every status is read and kept in its io. A queue on which nothing has come for timeout_ms is left
 * alone: its commands are `late`. So is one that completes what nobody sent (`strange`). The host then calls
 * `give_back`, resets the controller or looks with its own stack, and calls `take_over`.
 *
 * Owner: the caller owns controllers, their memory and records; a drive is one queue's (twin.h) and one
 * thread's at a time. */
#ifndef PST_NVME_H
#define PST_NVME_H

#include "common/nvme/lanes.h"
#include "common/slots/request.h"
#include "kernels/twin.h"

PST_BEGIN_DECLS

#define PST_K_NVME_DRIVE_SSDS_MAX 16    /* as many as the host's stack takes */
#define PST_K_NVME_DRIVE_QUEUES_MAX 128 /* of a drive: each has a block to itself at most */
#define PST_K_NVME_DRIVE_IOS_MAX (1 << 24)
#define PST_K_NVME_PENDING                                                                                   \
    0xffffu /* an io's status until it has ended; no controller's, or it is taken as late */

/* Memory of the host that a controller reads and writes too, made known to the GPU: queues, data, registers.
 */
struct pst_k_nvme_shared {
    void *at; /* page-aligned */
    size_t bytes;
    bool io_memory; /* registers of a real controller: its BAR, as VFIO maps it */
};

/* What tables of requests are about. No file, and nothing on an SSD, reaches beyond byte
 * 2^PST_REQUEST_AT_BITS. */
struct pst_k_nvme_layout {
    struct pst_request_array arrays[PST_REQUEST_ARRAYS_MAX];
    struct pst_extent files[PST_REQUEST_FILES_MAX]; /* where each file of the arrays lies on the SSDs */
    uint32_t transfer_bytes;                        /* of one command at most: whole blocks */
    uint8_t lba_shift;
    bool writable;         /* requests may write; such are left to the host */
    char *staging;         /* shared: batches x most pieces of staging_each bytes; NULL: none */
    uint32_t staging_each; /* whole blocks; 0: rows that do not fill blocks are left to the host */
    uint32_t merge_bytes;  /* of a command that several requests share, at most; at least staging_each, and at
                              most transfer_bytes */
    uint64_t staging_iova[PST_K_NVME_DRIVE_SSDS_MAX];
};

struct pst_k_nvme_drive_options {
    struct pst_queue *queue;
    enum pst_nvme_way way;
    struct pst_nvme_qp *const *pairs; /* the host's; SSD by SSD, queues_each for each */
    uint32_t ssds, queues_each;
    uint32_t page;          /* the controllers' */
    uint32_t batches, most; /* groups of commands, and commands of each */
    uint32_t timeout_ms;    /* without any completion of a queue that waits for one */
    const struct pst_k_nvme_shared *shared;
    uint32_t shareds;
    const struct pst_k_nvme_layout *layout; /* for tables; copied; NULL: there will be none */
    const uint32_t *stop;                   /* pinned; once it is not 0, nothing is waited for; NULL: none */
};

/* How a launch is cut. Zeroes: 1 block of 1024 threads to submit async, as many blocks as queues of 256 to
 * complete, one warp for each command (as far as there is room for warps) for sync. */
struct pst_k_nvme_shape {
    uint32_t submit_threads;                    /* P_s: of async's one block */
    uint32_t complete_blocks, complete_threads; /* P_c */
    uint32_t warps;                             /* of sync */
};

/* Rows of an array that is striped over the SSDs: row v is on SSD v mod ssds, from block lba + v / ssds x
 * row_blocks on. The row of command i is ids[at], at = pick ? pick[i] : i, and lands at iova + at x stride.
 */
struct pst_k_nvme_rows {
    const int64_t *ids;
    const int32_t *pick; /* as lookup leaves the misses; NULL: all */
    struct pst_twin_n n;
    uint32_t nsid, row_bytes; /* whole blocks, at most what one command moves */
    uint8_t lba_shift;
    uint64_t lba, stride;                     /* stride in bytes */
    uint64_t iova[PST_K_NVME_DRIVE_SSDS_MAX]; /* of the destination, for each SSD */
};

/* n requests from byte `at` (a multiple of 8) of a slot on: all of them within the slot, which is memory that
 * kernels use at the host's address and controllers at iova. */
struct pst_k_nvme_table {
    char *slot;
    uint64_t slot_bytes, at;
    uint32_t n;
    uint64_t iova[PST_K_NVME_DRIVE_SSDS_MAX]; /* for each SSD */
};

/* What became of a batch, in pinned memory; sequence last, as in struct pst_twin_record. */
struct pst_k_nvme_record {
    uint64_t sequence;
    uint32_t n, ended, failed; /* failed: of the ended, those whose status is not PST_NVME_OK */
    uint32_t late;             /* not ended: on queues that are left to the host */
    uint32_t strange;          /* completions of no command in flight, of the whole drive */
    uint32_t first_failed;     /* the smallest io that failed; its status and LBA */
    uint32_t first_status;     /* enum pst_nvme_status */
    uint64_t first_lba;
    uint64_t sq_doorbells, cq_doorbells; /* of the drive's queues, ever */
    /* of a table; the numbers are of what has ended well */
    uint32_t left;         /* requests that are the host's to bring: not for a command, failed, or late */
    uint32_t bad;          /* 1 + the first request that is wrong: nothing was sent; 0: none */
    uint64_t rows, wanted; /* wanted: bytes of them that are data */
    uint64_t bytes;        /* moved */
    uint64_t copied;       /* from the staging to the slot */
    uint64_t merged;       /* requests that came with another's command */
};

struct pst_k_nvme_drive;

struct pst_k_nvme_twin { /* CUDA's is struct pst_twin's `nvme` */
    /* Registers what is shared and takes the pairs over. PST_E_UNSUPPORTED: this GPU cannot reach something;
     * why (PST_TWIN_WHY_BYTES) says what. */
    pst_rc (*drive_new)(const struct pst_k_nvme_drive_options *options, struct pst_k_nvme_drive **drive,
                        char *why);
    /* What is in flight stays so: the controllers are the caller's to reset. */
    void (*drive_free)(struct pst_k_nvme_drive *d);
    /* A batch's commands, in the twin's memory: `queue` counts over all pairs. Copied with twin.h's copy. */
    struct pst_nvme_io *(*ios)(struct pst_k_nvme_drive *d, uint32_t batch);
    /* For batch: queues + 1 numbers, in the twin's memory. */
    uint32_t *(*begin)(struct pst_k_nvme_drive *d, uint32_t batch);
    /* Makes a batch's commands of rows, round robin over each SSD's queues. Not for the way `batch`. An id
     * below zero is PST_E_FORMAT, kept in the queue (twin.h). */
    pst_rc (*aim)(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_rows *rows);
    /* Makes a batch's commands of a table of at most `most` requests, grouped by queue, for any way; *n, no
     * more than there are requests, is what to submit. Of an array that is striped over files, a request of
     * several rows is left to the host.
     */
    pst_rc (*aim_table)(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_table *table,
                        struct pst_twin_n *n);
    /* Which requests of a completed batch's table are left, in the twin's memory: as many as its record says,
     * in no order. */
    const uint32_t *(*left)(struct pst_k_nvme_drive *d, uint32_t batch);
    /* The first n commands of a batch that nothing is in flight of. */
    pst_rc (*submit)(struct pst_k_nvme_drive *d, uint32_t batch, struct pst_twin_n n,
                     const struct pst_k_nvme_shape *shape);
    pst_rc (*complete)(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_shape *shape,
                       struct pst_k_nvme_record *record, uint64_t sequence);
    /* Waits for the queue; then the host's pairs are as the drive left them, and are the host's. */
    pst_rc (*give_back)(struct pst_k_nvme_drive *d, char *why);
    /* The drive's pairs are as the host left them, and are the drive's; late commands of before are
     * forgotten.
     */
    pst_rc (*take_over)(struct pst_k_nvme_drive *d, char *why);
};

PST_END_DECLS
#endif

/* nvme.h: NVMe queues driven from a GPU: rows that a batch misses are asked for, and come, without the host.
 * The queues are common/nvme/queue.h's, as the host's stack (common/nvme/stack.h) drives them; that stack is
 * the CPU's twin of this, which is why this has a table of its own and no lines in twin.h's list: who samples
 * or trains needs no NVMe, and kernels/cpu cannot know controllers.
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
 * Faults: every status is read and kept in its io. A queue on which nothing has come for timeout_ms is left
 * alone: its commands are `late`. So is one that completes what nobody sent (`strange`). The host then calls
 * `give_back`, resets the controller or looks with its own stack, and calls `take_over`.
 *
 * Owner: the caller owns controllers, their memory and records; a drive is one queue's (twin.h) and one
 * thread's at a time. */
#ifndef PST_KERNELS_NVME_H
#define PST_KERNELS_NVME_H

#include "../common/nvme/stack_lanes.h"
#include "twin.h"

PST_BEGIN_DECLS

#define PST_NVME_DRIVE_SSDS_MAX 16    /* as many as the host's stack takes */
#define PST_NVME_DRIVE_QUEUES_MAX 128 /* of a drive: each has a block to itself at most */
#define PST_NVME_DRIVE_IOS_MAX (1 << 24)
#define PST_NVME_PENDING                                                                                     \
    0xffffu /* an io's status until it has ended; no controller's, or it is taken as late */

enum pst_nvme_way { PST_NVME_WAY_ASYNC, PST_NVME_WAY_SYNC, PST_NVME_WAY_BATCH };

/* Memory of the host that a controller reads and writes too, made known to the GPU: queues, data, registers.
 */
struct pst_nvme_shared {
    void *at; /* page-aligned */
    size_t bytes;
    bool io_memory; /* registers of a real controller: its BAR, as VFIO maps it */
};

struct pst_nvme_drive_options {
    struct pst_queue *queue;
    enum pst_nvme_way way;
    struct pst_nvme_qp *const *pairs; /* the host's; SSD by SSD, queues_each for each */
    uint32_t ssds, queues_each;
    uint32_t page;          /* the controllers' */
    uint32_t batches, most; /* groups of commands, and commands of each */
    uint32_t timeout_ms;    /* without any completion of a queue that waits for one */
    const struct pst_nvme_shared *shared;
    uint32_t shareds;
};

/* How a launch is cut. Zeroes: 1 block of 1024 threads to submit async, as many blocks as queues of 256 to
 * complete, one warp for each command (as far as there is room for warps) for sync. */
struct pst_nvme_shape {
    uint32_t submit_threads;                    /* P_s: of async's one block */
    uint32_t complete_blocks, complete_threads; /* P_c */
    uint32_t warps;                             /* of sync */
};

/* Rows of an array that is striped over the SSDs: row v is on SSD v mod ssds, from block lba + v / ssds x
 * row_blocks on. The row of command i is ids[at], at = pick ? pick[i] : i, and lands at iova + at x stride.
 */
struct pst_nvme_rows {
    const int64_t *ids;
    const int32_t *pick; /* as lookup leaves the misses; NULL: all */
    struct pst_n n;
    uint32_t nsid, row_bytes; /* whole blocks, at most what one command moves */
    uint8_t lba_shift;
    uint64_t lba, stride;                   /* stride in bytes */
    uint64_t iova[PST_NVME_DRIVE_SSDS_MAX]; /* of the destination, for each SSD */
};

/* What became of a batch, in pinned memory; sequence last, as in struct pst_record. */
struct pst_nvme_record {
    uint64_t sequence;
    uint32_t n, ended, failed; /* failed: of the ended, those whose status is not PST_NVME_OK */
    uint32_t late;             /* not ended: on queues that are left to the host */
    uint32_t strange;          /* completions of no command in flight, of the whole drive */
    uint32_t first_failed;     /* the smallest io that failed; its status and LBA */
    uint32_t first_status;     /* enum pst_nvme_status */
    uint64_t first_lba;
};

struct pst_nvme_drive;

struct pst_nvme_twin { /* CUDA's is struct pst_twin's `nvme` */
    /* Registers what is shared and takes the pairs over. PST_E_UNSUPPORTED: this GPU cannot reach something;
     * why (PST_WHY_BYTES) says what. */
    pst_rc (*drive_new)(const struct pst_nvme_drive_options *options, struct pst_nvme_drive **drive,
                        char *why);
    /* What is in flight stays so: the controllers are the caller's to reset. */
    void (*drive_free)(struct pst_nvme_drive *d);
    /* A batch's commands, in the twin's memory: `queue` counts over all pairs. Copied with twin.h's copy. */
    struct pst_nvme_io *(*ios)(struct pst_nvme_drive *d, uint32_t batch);
    /* For batch: queues + 1 numbers, in the twin's memory. */
    uint32_t *(*begin)(struct pst_nvme_drive *d, uint32_t batch);
    /* Makes a batch's commands of rows, round robin over each SSD's queues. Not for the way `batch`. An id
     * below zero is PST_E_FORMAT, kept in the queue (twin.h). */
    pst_rc (*aim)(struct pst_nvme_drive *d, uint32_t batch, const struct pst_nvme_rows *rows);
    /* The first n commands of a batch that nothing is in flight of. */
    pst_rc (*submit)(struct pst_nvme_drive *d, uint32_t batch, struct pst_n n,
                     const struct pst_nvme_shape *shape);
    pst_rc (*complete)(struct pst_nvme_drive *d, uint32_t batch, const struct pst_nvme_shape *shape,
                       struct pst_nvme_record *record, uint64_t sequence);
    /* Waits for the queue; then the host's pairs are as the drive left them, and are the host's. */
    pst_rc (*give_back)(struct pst_nvme_drive *d, char *why);
    /* The drive's pairs are as the host left them, and are the drive's; late commands of before are
     * forgotten.
     */
    pst_rc (*take_over)(struct pst_nvme_drive *d, char *why);
};

PST_END_DECLS
#endif

/* nvme.h: NVMe queues driven by a GPU. Kernels ask for the rows that a batch misses and wait for them,
 * without the host. The queues are those of common/nvme/queue.h. The CPU's twin is the stack of
 * common/nvme/stack, which needs controllers. So these functions have their own table and are not in the
 * list of twin.h.
 *
 * A drive has the queue pairs of some controllers, and room for `batches` groups of up to `most` commands
 * each. `aim` writes a batch's commands (struct pst_nvme_io), or they are copied to `ios`. `submit` sends
 * them. `complete` waits for them on the device and writes one record into pinned memory. Commands that do
 * not fit the queues go in waves, also from the device.
 *
 * async (Hyperion, section III-A). submit: one block counts by queue, scans, scatters, writes with P_s
 * threads, and rings one doorbell for each queue. complete: blocks take completions as they come, a warp for
 * each run of positions, with one doorbell for each take. A batch may be submitted before others are
 * completed.
 *
 * batch (Legend, section 5). Positions are known beforehand: the caller has grouped the commands by queue,
 * and `begin` says where each queue's commands begin. submit: any number of blocks write, and none waits for
 * another; then each queue has one doorbell. complete: looks at a wave's last completion, then takes the
 * whole wave.
 *
 * sync (GIDS; BaM). Each command has a warp. Its leader takes the queue's lock, writes, rings, and takes
 * completions until its own has come, while the other lanes wait. submit does all of this.
 *
 * Tables. `aim_table` takes a table of disk requests (common/slots/request.h) from its slot, which another
 * process wrote. Each request is read once and judged (pst_request_judge). It becomes a command, or it is
 * left to the host because one command cannot do it. If a request is wrong, nothing of its table is sent.
 * Data land in the slot. For rows that do not fill blocks, the blocks around them land in `staging`, and
 * `complete` copies the rows. Requests whose blocks are equal, overlap or are adjacent share a command of at
 * most `merge_bytes`, and its result.
 *
 * Faults. Every status is read and kept in its io. A queue without any completion for timeout_ms is left
 * alone, and its commands are `late`. The same happens if it completes what nobody sent (`strange`). Then the
 * host calls `give_back`, resets the controller or reads with its own stack, and calls `take_over`.
 *
 * Owner: the caller owns controllers, their memory, and records. Threads: a drive belongs to one queue
 * (twin.h) and is used by one thread at a time. */
#ifndef PST_NVME_H
#define PST_NVME_H

#include "common/nvme/lanes.h"
#include "common/slots/request.h"
#include "kernels/twin.h"

PST_BEGIN_DECLS

#define PST_K_NVME_DRIVE_SSDS_MAX 16    /* as many as the host's stack supports */
#define PST_K_NVME_DRIVE_QUEUES_MAX 128 /* of a drive; a launch has at most one block for each */
#define PST_K_NVME_DRIVE_IOS_MAX (1 << 24)
/* the status of an io that has not ended; if a controller reports it, the io counts as late */
#define PST_K_NVME_PENDING 0xffffu

/* Memory of the host that controllers access, too, and that is made accessible for the GPU: queues, data,
 * registers. */
struct pst_k_nvme_shared {
    void *at; /* page-aligned */
    size_t bytes;
    bool io_memory; /* the registers of a real controller: its BAR, mapped by VFIO */
};

/* Where the arrays lie that tables of requests may name. No file, and nothing on an SSD, extends beyond byte
 * 2^PST_REQUEST_AT_BITS. */
struct pst_k_nvme_layout {
    struct pst_request_array arrays[PST_REQUEST_ARRAYS_MAX];
    struct pst_extent files[PST_REQUEST_FILES_MAX]; /* where each file of the arrays lies on the SSDs */
    uint32_t transfer_bytes;                        /* most of one command, in whole blocks */
    uint8_t lba_shift;
    bool writable;         /* requests may write; writes are left to the host */
    char *staging;         /* shared memory: batches x most pieces of staging_each bytes; NULL: none */
    uint32_t staging_each; /* whole blocks; 0: rows that do not fill blocks are left to the host */
    uint32_t merge_bytes;  /* most of a command that requests share: staging_each to transfer_bytes */
    uint64_t staging_iova[PST_K_NVME_DRIVE_SSDS_MAX];
};

struct pst_k_nvme_drive_options {
    struct pst_queue *queue;
    enum pst_nvme_way way;
    struct pst_nvme_qp *const *pairs; /* the host's pairs, SSD by SSD, queues_each for each */
    uint32_t ssds, queues_each;
    uint32_t page;          /* page size of the controllers */
    uint32_t batches, most; /* groups of commands, and most commands of each */
    uint32_t timeout_ms;    /* after which a queue without a completion is left alone */
    const struct pst_k_nvme_shared *shared;
    uint32_t shareds;
    const struct pst_k_nvme_layout *layout; /* for tables; it is copied; NULL: there will be no tables */
    const uint32_t *stop; /* pinned memory; once it is not 0, kernels wait for nothing; NULL: none */
};

/* The shape of a launch. Zeroes mean: one block of 1024 threads to submit async; a warp for
 * each queue to complete, of at most 32 warps in 4 blocks, which then have several queues each; one thread of
 * batch, or one warp of sync, for each command, as far as there is room. */
struct pst_k_nvme_shape {
    uint32_t submit_threads;                    /* P_s: threads of async's only block */
    uint32_t batch_blocks, batch_threads;       /* of batch, to write commands */
    uint32_t complete_blocks, complete_threads; /* P_c */
    uint32_t warps;                             /* for sync */
};

/* Rows of an array that is striped over the SSDs: row v is on SSD v mod ssds, from block lba + v / ssds x
 * row_blocks on. Command i reads row ids[at], where at = pick ? pick[i] : i. The row lands at iova + at x
 * stride. */
struct pst_k_nvme_rows {
    const int64_t *ids;
    const int32_t *pick; /* the misses, as lookup writes them; NULL: all */
    struct pst_twin_n n;
    uint32_t nsid, row_bytes; /* row_bytes: whole blocks, at most those of one command */
    uint8_t lba_shift;
    uint64_t lba, stride;                     /* stride: in bytes */
    uint64_t iova[PST_K_NVME_DRIVE_SSDS_MAX]; /* of the destination, for each SSD */
};

/* n requests that begin at byte `at` (a multiple of 8) of a slot and lie within it. Kernels use the slot at
 * the host's address, controllers at iova. */
struct pst_k_nvme_table {
    char *slot;
    uint64_t slot_bytes, at;
    uint32_t n;
    uint64_t iova[PST_K_NVME_DRIVE_SSDS_MAX]; /* for each SSD */
};

/* The result of a batch, in pinned memory. The sequence is written last, as in struct pst_twin_record. */
struct pst_k_nvme_record {
    uint64_t sequence;
    uint32_t n, ended, failed; /* failed: commands that ended with another status than PST_NVME_OK */
    uint32_t late;             /* commands that have not ended, on queues that are left to the host */
    uint32_t strange;          /* completions that belong to no command in flight, of the whole drive */
    uint32_t first_failed;     /* the failed io with the smallest number; next its status and LBA */
    uint32_t first_status;     /* enum pst_nvme_status */
    uint64_t first_lba;
    uint64_t sq_doorbells, cq_doorbells; /* of the drive's queues since it was made */
    /* for a table; the counts are of commands that ended well */
    uint32_t left; /* requests for the host: not possible by a command, failed, or late */
    uint32_t bad;  /* 1 + the number of the first wrong request; then nothing was sent. 0: none is wrong */
    uint64_t rows, wanted; /* wanted: bytes of the rows that are data */
    uint64_t bytes;        /* moved */
    uint64_t copied;       /* bytes copied from the staging to the slot */
    uint64_t merged;       /* requests that shared another's command */
};

struct pst_k_nvme_drive;

struct pst_k_nvme_twin { /* CUDA's is `nvme` of struct pst_twin */
    /* Registers the shared memory and takes the pairs over. PST_E_UNSUPPORTED: this GPU cannot access
     * something; why (PST_TWIN_WHY_BYTES) says what. */
    pst_rc (*drive_new)(const struct pst_k_nvme_drive_options *options, struct pst_k_nvme_drive **drive,
                        char *why);
    /* Commands in flight stay in flight; the caller must reset the controllers. */
    void (*drive_free)(struct pst_k_nvme_drive *d);
    /* A batch's commands, in the twin's memory; `queue` counts over all pairs. Use twin.h's copy. */
    struct pst_nvme_io *(*ios)(struct pst_k_nvme_drive *d, uint32_t batch);
    /* For the way batch: queues + 1 numbers, in the twin's memory. */
    uint32_t *(*begin)(struct pst_k_nvme_drive *d, uint32_t batch);
    /* Makes a batch's commands from rows, round robin over each SSD's queues. Not for the way batch. A
     * negative id is PST_E_FORMAT, kept in the queue (twin.h). */
    pst_rc (*aim)(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_rows *rows);
    /* Makes a batch's commands from a table of at most `most` requests, grouped by queue, for any way. *n is
     * what to submit, at most as many as there are requests. A request of several rows of an array in several
     * files is left to the host. */
    pst_rc (*aim_table)(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_table *table,
                        struct pst_twin_n *n);
    /* The numbers of requests that a completed batch's table left, in the twin's memory: as many as its
     * record says, in any order. */
    const uint32_t *(*left)(struct pst_k_nvme_drive *d, uint32_t batch);
    /* Sends the first n commands of a batch that has nothing in flight. */
    pst_rc (*submit)(struct pst_k_nvme_drive *d, uint32_t batch, struct pst_twin_n n,
                     const struct pst_k_nvme_shape *shape);
    pst_rc (*complete)(struct pst_k_nvme_drive *d, uint32_t batch, const struct pst_k_nvme_shape *shape,
                       struct pst_k_nvme_record *record, uint64_t sequence);
    /* Waits for the queue. Then the host owns its pairs again, in the state in which the drive left them. */
    pst_rc (*give_back)(struct pst_k_nvme_drive *d, char *why);
    /* The drive owns the pairs again, in the state in which the host left them. Late commands from before are
     * forgotten. */
    pst_rc (*take_over)(struct pst_k_nvme_drive *d, char *why);
};

PST_END_DECLS
#endif

/* emulated_impl.h: the emulated controllers from the inside.
 *
 * The main thread serves sockets, registers and admin queues. Workers serve IO queues. All that a worker
 * accesses of an SSD is a part: completion queues, the submission queues that complete there, and their
 * commands. A worker holds the lock of its part for one turn at a time. To change queues, mappings or
 * sessions, the main thread holds the locks of all parts of an SSD (pst_emu_hold). */
#ifndef PST_EMULATED_IMPL_H
#define PST_EMULATED_IMPL_H

#include <jansson.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/ipc/bus.h"
#include "common/nvme/emulated/emulated.h"
#include "common/nvme/emulated/server.h"
#include "common/nvme/queue.h"

#define PST_EMU_WORKERS_MAX 16
#define PST_EMU_NAMESPACES_MAX 64 /* one for each file that requests may name */
#define PST_EMU_QUEUES_MAX 128
#define PST_EMU_MAPPINGS_MAX 1024          /* regions of one client */
#define PST_EMU_QUANTILES 1024             /* of the latency distribution; its mean is then exact to 1e-4 */
#define PST_EMU_FILE_IO_MAX 256            /* file operations of one part in flight */
#define PST_EMU_BUFFERED_MAX (64ull << 20) /* bytes of these operations */

/* ---- configuration ------------------------------------------------------------------------------- */

enum pst_emu_kind { PST_EMU_RAM, PST_EMU_FILE, PST_EMU_FUNCTION };

struct pst_emu_namespace_config {
    enum pst_emu_kind kind;
    uint64_t bytes;    /* of one SSD; of files of different sizes, the largest */
    uint64_t at, unit; /* FILE: SSD s of n has units s, s + n, ..., counted from byte `at` of the file */
    bool own_files;    /* FILE: each SSD has a file of its own; unit is 0 */
    bool writable;     /* of FILE; RAM is always writable, FUNCTION never */
    bool filled;       /* RAM: begins with the content of a FUNCTION, not with zeroes */
    int fd[PST_NVME_EMULATED_SSDS_MAX]; /* FILE: of each SSD's file, or only the first; -1: none */
};

struct pst_emu_faults {
    double error_rate, delay_rate, lost_rate, fatal_rate, torn_rate; /* of commands */
    uint64_t delay_ns, reorder_ns; /* longest extra latency of a delayed command, and of every command */
    uint64_t dead_after; /* after so many IO commands an SSD fails and never becomes ready again; 0: never */
    uint64_t seed;
};

struct pst_emu_config {
    uint32_t ssds, workers;
    double latency_ns, iops, bytes_per_s, spread; /* 0: no limit; already dilated */
    double bus_bytes_per_s;                       /* of all SSDs together; the same */
    struct pst_bus *bus; /* of a run, with this rate; NULL: the SSDs have their own bus, or none */
    void *bus_page;      /* what is mapped for it */
    uint32_t lba_bytes, entries_max, queues, dstrd;
    uint64_t transfer_bytes; /* 0: no limit */
    bool check_ids;          /* refuse ids that are in flight; compares each command with all others */
    uint32_t nnamespaces;
    struct pst_emu_namespace_config namespaces[PST_EMU_NAMESPACES_MAX];
    struct pst_emu_faults faults;
};

/* Reads a configuration and opens its files. PST_E_ARG: the message names the key. */
PST_MUST_USE pst_rc pst_emu_configure(struct pst_emu_config *config, const char *json);
void pst_emu_config_release(struct pst_emu_config *config);

/* ---- parts ------------------------------------------------------------------------------------------ */

struct pst_emu_sq;

struct pst_emu_command {
    struct pst_nvme_sqe sqe;
    uint64_t due_ns;
    struct pst_emu_sq *sq;
    /* in the free list, or in the list of those that wait for room in their completion queue */
    struct pst_emu_command *next;
    uint32_t dw0;
    uint16_t status;
    bool used, lost, torn, fault;
    uint8_t *buffer; /* data from a file, or for it */
    uint32_t io_pending;
    bool io_failed;
};

struct pst_emu_cq {
    struct pst_nvme_cqe *base;
    volatile uint32_t *doorbell;
    uint32_t depth, seen;
    uint64_t posted;
    uint16_t qid;
    uint32_t users; /* submission queues that complete here */
    struct pst_emu_command *waiting, **waiting_end;
};

struct pst_emu_sq {
    struct pst_nvme_sqe *base;
    volatile uint32_t *doorbell;
    uint32_t depth, head, seen;
    uint16_t qid;
    struct pst_emu_cq *cq;
    struct pst_emu_part *part;
    struct pst_emu_command *commands, *free_commands; /* `depth` of them */
};

struct pst_emu_due {
    uint64_t ns;
    struct pst_emu_command *command;
};

struct pst_emu_mapping {
    uint64_t iova, bytes;
    uint8_t *base;
};

struct pst_emu_part {
    struct pst_emu_ssd *ssd;
    pthread_mutex_t lock;
    _Atomic bool wanted; /* the main thread waits for the lock */
    struct pst_emu_sq *sqs[PST_EMU_QUEUES_MAX + 1];
    uint32_t nsqs;
    struct pst_emu_due *heap;
    uint32_t nheap, heap_room;
    const struct pst_emu_mapping *hit; /* the mapping of the last access */
    uint64_t random;
    struct io_uring ring;
    bool ring_made;
    uint32_t io_in_flight, io_posted;
    uint64_t buffered;
};

/* ---- one SSD ---------------------------------------------------------------------------------------- */

struct pst_emu_ssd {
    struct pst_emu *emu;
    uint32_t number;
    uint8_t *shared; /* registers and doorbells, then counts */
    int shared_fd;
    struct pst_nvme_emulated_stats *stats;
    uint8_t *ram[PST_EMU_NAMESPACES_MAX];
    int session;                                           /* the client's socket; -1: none */
    struct pst_emu_mapping mappings[PST_EMU_MAPPINGS_MAX]; /* by iova */
    uint32_t nmappings;
    bool enabled;
    uint32_t cc; /* the register when last read */
    _Atomic bool fatal;
    _Atomic uint64_t commands;   /* IO commands, for dead_after */
    _Atomic uint64_t busy_until; /* for the speed model, in 1/256 ns */
    struct pst_emu_cq *cqs[PST_EMU_QUEUES_MAX + 1];
    struct pst_emu_sq *sqs[PST_EMU_QUEUES_MAX + 1];
    /* the last one in use is the main thread's, for the admin queue */
    struct pst_emu_part parts[PST_EMU_WORKERS_MAX + 1];
};

struct pst_emu {
    struct pst_emu_config config;
    float latency_of[PST_EMU_QUANTILES]; /* quantiles of latency, relative to the mean */
    struct pst_emu_ssd ssds[PST_NVME_EMULATED_SSDS_MAX];
    _Atomic uint64_t bus_until; /* for the speed model, in 1/256 ns: the data of all SSDs pass one bus */
    uint64_t next_iova;         /* no address is given twice, so that the use of an old one is noticed */
    int listener;
    _Atomic bool stop;
    pthread_t threads[PST_EMU_WORKERS_MAX];
    uint32_t nthreads;
    _Atomic uint32_t enabled; /* enabled SSDs; with none, workers sleep */
};

static inline struct pst_emu_part *pst_emu_admin_part(struct pst_emu_ssd *ssd)
{
    return &ssd->parts[ssd->emu->config.workers];
}

static inline bool pst_emu_dead(struct pst_emu_ssd *ssd)
{
    const uint64_t after = ssd->emu->config.faults.dead_after;
    return after > 0 && atomic_load(&ssd->commands) >= after;
}

uint64_t pst_emu_random(struct pst_emu_part *part);

/* media.c. Begin and move set command->status. Data of files go through command->buffer: pst_emu_media_begin
 * posts the operations, pst_emu_media_reap takes those that ended. */
void pst_emu_media_begin(struct pst_emu_part *part, struct pst_emu_command *command);
void pst_emu_media_reap(struct pst_emu_part *part, bool wait);
void pst_emu_media_move(struct pst_emu_part *part, struct pst_emu_command *command);

/* memory.c: the client's memory. NULL, and counted, if [iova, iova + bytes) is not mapped. */
uint8_t *pst_emu_translate(struct pst_emu_part *part, uint64_t iova, uint64_t bytes);
/* The same for a queue, which must lie in one mapping. The caller holds the SSD. */
void *pst_emu_translate_queue(struct pst_emu_ssd *ssd, uint64_t iova, uint64_t bytes);
/* Calls visit for each contiguous piece of a transfer, in order, until it returns false. False, with the
 * command's status set, if the PRPs are wrong. */
bool pst_emu_walk(struct pst_emu_part *part, struct pst_emu_command *command, uint64_t bytes,
                  bool (*visit)(void *context, uint8_t *memory, uint64_t at, uint64_t bytes), void *context);
/* Copies to or from the client's memory or RAM media. The client orders accesses by doorbells and completions
 * in another process. ThreadSanitizer cannot see that, so it does not check this function. */
void pst_emu_copy(void *to, const void *from, uint64_t bytes);
PST_MUST_USE pst_rc pst_emu_map(struct pst_emu_ssd *ssd, int fd, uint64_t offset, uint64_t bytes,
                                uint64_t *iova);
PST_MUST_USE pst_rc pst_emu_unmap(struct pst_emu_ssd *ssd, uint64_t iova);
void pst_emu_unmap_all(struct pst_emu_ssd *ssd);

/* model.c: the time when a command that comes now is due. */
void pst_emu_model_init(struct pst_emu *emu);
uint64_t pst_emu_due(struct pst_emu_part *part, struct pst_emu_command *command, uint64_t now);

/* queue.c: one turn of a part. True: it did something. *next_ns: when the next command is due. */
bool pst_emu_turn(struct pst_emu_part *part, uint64_t *next_ns);
/* Drops the commands of a queue; NULL: of all queues. */
void pst_emu_drop(struct pst_emu_part *part, const struct pst_emu_sq *sq);
bool pst_emu_abort(struct pst_emu_sq *sq, uint16_t cid);

/* admin.c */
void pst_emu_registers(struct pst_emu_ssd *ssd); /* reads CC and serves the admin queue */
void pst_emu_registers_init(struct pst_emu_ssd *ssd);
void pst_emu_disable(struct pst_emu_ssd *ssd); /* removes all queues; nothing is in flight then */
void pst_emu_admin(struct pst_emu_part *part, struct pst_emu_command *command);

/* server.c */
void pst_emu_hold(struct pst_emu_ssd *ssd);
void pst_emu_let_go(struct pst_emu_ssd *ssd);

#endif

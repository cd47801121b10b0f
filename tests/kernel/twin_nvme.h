/* twin_nvme.h: drives of a GPU (kernels/nvme.h) over emulated controllers, and commands whose every byte is
 * known. Used by test_twin_nvme*.c. */
#ifndef TWIN_NVME_H
#define TWIN_NVME_H

#include "kernels/nvme.h"
#include "tests/nvme/nvme_fixture.h"
#include "tests/kernel/twin_fixture.h"

enum {
    PLACE = 16384,   /* memory of one command: up to a page of shift, the data, and canaries */
    UNIT = 16,       /* blocks of an SSD that one write has to itself */
    LBA = 512,       /* bytes of a block */
    RECORDS = 4,     /* batches of a drive at most */
    PATIENT = 60000, /* ms: what is not lost comes by then on any machine */
    SSD_BYTES = 1 << 20,
};

struct rig {
    struct bench b;
    struct pst_k_nvme_drive *drive;
    struct pst_k_nvme_drive_options options;
    const struct pst_k_nvme_layout *layout; /* for drives to come; NULL: none */
    const uint32_t *stop;                   /* likewise */
    struct pst_k_nvme_record *records;      /* pinned */
    uint8_t *shadow[SSDS_MAX];
};

/* Emulated SSDs and memory for so many commands; nothing drives them yet. */
static inline void rig_start(struct rig *r, const char *json, uint32_t ssds, uint32_t queues, uint32_t depth,
                             uint32_t places)
{
    memset(r, 0, sizeof *r);
    connect_all(&r->b, json, ssds);
    bring_up(&r->b, ssds, queues, depth, (uint64_t)places * PLACE);
    for (uint32_t i = 0; i < ssds; i++)
        assert_non_null(r->shadow[i] = calloc(1, SSD_BYTES));
    assert_int_equal(
        cuda->alloc(0, PST_TWIN_MEMORY_PINNED, RECORDS * sizeof *r->records, (void **)&r->records, why),
        PST_OK);
    memset(r->records, 0, RECORDS * sizeof *r->records);
}

/* The GPU takes every queue of every SSD. */
static inline void rig_drive(struct rig *r, enum pst_nvme_way way, uint32_t batches, uint32_t most,
                             uint32_t timeout_ms)
{
    struct pst_nvme_qp *pairs[PST_K_NVME_DRIVE_QUEUES_MAX];
    struct pst_k_nvme_shared shared[PST_K_NVME_DRIVE_QUEUES_MAX + SSDS_MAX + 1] = {{0}};
    uint32_t n = 0, s = 0, each = 0;
    shared[s++] = (struct pst_k_nvme_shared){.at = r->b.memory.base, .bytes = r->b.memory.bytes};
    for (uint32_t i = 0; i < r->b.ssds; i++) {
        struct pst_nvme_transport *t = &r->b.t[i];
        shared[s++] = (struct pst_k_nvme_shared){.at = (void *)(uintptr_t)t->regs,
                                                 .bytes = pst_align_up(t->regs_bytes, PST_PAGE)};
        each = 0;
        for (uint32_t qid = 1; r->b.c[i].io[qid] != NULL; qid++, each++) {
            uint64_t bytes;
            pairs[n++] = r->b.c[i].io[qid];
            pst_nvme_queue_memory(r->b.c[i].io[qid], &shared[s].at, &bytes);
            shared[s++].bytes = bytes;
        }
    }
    r->options = (struct pst_k_nvme_drive_options){.queue = queue,
                                                   .way = way,
                                                   .pairs = pairs,
                                                   .ssds = r->b.ssds,
                                                   .queues_each = each,
                                                   .page = r->b.c[0].page,
                                                   .batches = batches,
                                                   .most = most,
                                                   .timeout_ms = timeout_ms,
                                                   .shared = shared,
                                                   .shareds = s,
                                                   .layout = r->layout,
                                                   .stop = r->stop};
    if (cuda->nvme->drive_new(&r->options, &r->drive, why) != PST_OK)
        fail_msg("%s", why);
}

/* The host has the queues again, as the GPU left them. */
static inline void rig_undrive(struct rig *r)
{
    if (cuda->nvme->give_back(r->drive, why) != PST_OK)
        fail_msg("%s", why);
    cuda->nvme->drive_free(r->drive);
    r->drive = NULL;
}

static inline void rig_stop(struct rig *r)
{
    for (uint32_t i = 0; i < SSDS_MAX; i++)
        free(r->shadow[i]);
    cuda->release(PST_TWIN_MEMORY_PINNED, r->records);
    tear_down(&r->b);
}

/* ---- commands ------------------------------------------------------------------------------------- */

static inline uint32_t ssd_of(const struct rig *r, const struct pst_nvme_io *io)
{
    return io->queue / r->options.queues_each;
}

static inline uint8_t *landing_of(const struct rig *r, const struct pst_nvme_io *io)
{
    return (uint8_t *)r->b.memory.base + (io->iova - r->b.iova[ssd_of(r, io)]);
}

/* A command of `place`: a read of anything, or a write of a unit that no other of its round writes. */
static inline struct pst_nvme_io random_io(struct rig *r, uint32_t place, bool write, uint32_t unit)
{
    const uint32_t blocks = 1 + (uint32_t)rnd(UNIT), units = SSD_BYTES / LBA / UNIT;
    const uint32_t ssd = write ? unit / units : (uint32_t)rnd(r->b.ssds),
                   from = (uint32_t)rnd(UNIT - blocks + 1);
    const uint64_t at = (uint64_t)place * PLACE + 4 * rnd(PST_PAGE / 4);
    const uint32_t lba = write ? unit % units * UNIT + from : (uint32_t)rnd(SSD_BYTES / LBA - blocks + 1);
    uint8_t *memory = (uint8_t *)r->b.memory.base + (uint64_t)place * PLACE;
    memset(memory, CANARY, PLACE);
    const struct pst_nvme_io io = {.lba = lba,
                                   .iova = r->b.iova[ssd] + at,
                                   .bytes = blocks * LBA,
                                   .nsid = 1,
                                   .queue =
                                       (uint16_t)(ssd * r->options.queues_each + rnd(r->options.queues_each)),
                                   .opcode = write ? PST_NVME_WRITE : PST_NVME_READ,
                                   .lba_shift = 9};
    for (uint32_t i = 0; write && i < io.bytes; i++)
        landing_of(r, &io)[i] = (uint8_t)rnd(256);
    return io;
}

static inline int by_queue(const void *a, const void *b)
{
    return (int)((const struct pst_nvme_io *)a)->queue - (int)((const struct pst_nvme_io *)b)->queue;
}

/* Gives a batch its commands, and, for `batch`, where each queue's begin. */
static inline void put_ios(struct rig *r, uint32_t batch, struct pst_nvme_io *ios, uint32_t n)
{
    const uint32_t queues = r->options.ssds * r->options.queues_each;
    uint32_t begin[PST_K_NVME_DRIVE_QUEUES_MAX + 1] = {0};
    if (r->options.way == PST_NVME_BATCH)
        qsort(ios, n, sizeof *ios, by_queue);
    for (uint32_t i = 0; i < n; i++)
        begin[ios[i].queue + 1]++;
    for (uint32_t i = 0; i < queues; i++)
        begin[i + 1] += begin[i];
    assert_int_equal(cuda->copy(queue, cuda->nvme->ios(r->drive, batch), ios, n * sizeof *ios), PST_OK);
    assert_int_equal(
        cuda->copy(queue, cuda->nvme->begin(r->drive, batch), begin, (queues + 1) * sizeof *begin), PST_OK);
    settled(PST_OK);
}

/* What the GPU's commands have become. */
static inline void get_ios(struct rig *r, uint32_t batch, struct pst_nvme_io *ios, uint32_t n)
{
    assert_int_equal(cuda->copy(queue, ios, cuda->nvme->ios(r->drive, batch), n * sizeof *ios), PST_OK);
    settled(PST_OK);
}

/* A command that has ended well: its bytes, and none beside them. */
static inline void check_io(struct rig *r, const struct pst_nvme_io *io, uint32_t place)
{
    const uint8_t *begins = (uint8_t *)r->b.memory.base + (uint64_t)place * PLACE, *at = landing_of(r, io);
    uint8_t *known = r->shadow[ssd_of(r, io)] + io->lba * LBA;
    assert_true(at >= begins && at + io->bytes <= begins + PLACE);
    if (io->opcode == PST_NVME_WRITE)
        memcpy(known, at, io->bytes);
    else
        assert_memory_equal(at, known, io->bytes);
    assert_true(untouched(begins, (uint64_t)(at - begins)) &&
                untouched(at + io->bytes, (uint64_t)(begins + PLACE - at) - io->bytes));
}

/* What the CPU's stack reads of the SSDs is what they should hold. The host has the queues. */
static inline void check_by_host(struct rig *r)
{
    enum { PIECE = 65536 };
    make_stack(&r->b, PST_NVME_ASYNC, 1, PATIENT);
    assert_true((uint64_t)r->b.ssds * SSD_BYTES <= r->b.memory.bytes);
    uint32_t asked = 0, came = 0;
    const uint32_t all = r->b.ssds * (SSD_BYTES / PIECE);
    while (came < all) {
        struct pst_nvme_result results[SLOTS];
        uint32_t n = 0;
        for (; asked < all && asked - came < SLOTS; asked++) {
            const uint32_t ssd = asked / (SSD_BYTES / PIECE), piece = asked % (SSD_BYTES / PIECE);
            const struct pst_nvme_request request = {.ssd = (uint16_t)ssd,
                                                     .opcode = PST_NVME_READ,
                                                     .lba_shift = 9,
                                                     .nsid = 1,
                                                     .lba = (uint64_t)piece * (PIECE / LBA),
                                                     .bytes = PIECE,
                                                     .iova = r->b.iova[ssd] + (uint64_t)asked * PIECE};
            NEED(pst_nvme_stack_add(r->b.stack, &request));
        }
        NEED(pst_nvme_stack_poll(r->b.stack, results, SLOTS, &n));
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(results[i].status, PST_NVME_OK);
        came += n;
    }
    for (uint32_t ssd = 0; ssd < r->b.ssds; ssd++)
        assert_memory_equal((uint8_t *)r->b.memory.base + (size_t)ssd * SSD_BYTES, r->shadow[ssd], SSD_BYTES);
    pst_nvme_stack_free(r->b.stack);
    r->b.stack = NULL;
}

#endif

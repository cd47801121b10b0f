/* drive.c: runs in the guest and drives QEMU's NVMe controllers with our driver over VFIO.
 *
 *   drive identify PCI                   prints what the controller reports, as JSON
 *   drive conform PCI                    tests the parts of the driver one by one; prints TAP
 *   drive reset PCI                      resets a slow drive with reads in flight
 *   drive soak READS WRITES IMAGE=PCI... random reads and writes of namespace 1 over 2 queues of each drive;
 * IMAGE is a copy of the namespace that the kernel made, and gets what is written */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/qemu/ssd.h"

/* ---- identify --------------------------------------------------------------------------------------- */

static void identify(const char *address)
{
    struct pst_nvme_transport t;
    struct pst_nvme_controller c;
    const struct pst_nvme_config config = {.queues = PST_NVME_QUEUES_MAX, .depth = 64};
    NEED(pst_nvme_vfio_connect(&t, address));
    NEED(pst_nvme_open(&c, &t, &config));
    printf("{\"model\": \"%s\", \"serial\": \"%s\", \"firmware\": \"%s\", \"transfer_bytes\": %" PRIu64
           ", \"queues\": %u, \"entries_max\": %u, \"version\": %u, \"namespaces\": [",
           c.model, c.serial, c.firmware, c.transfer_bytes, c.queues, c.entries_max, c.version);
    struct pst_nvme_namespace ns;
    int n = 0;
    for (uint32_t nsid = 1; nsid <= c.namespaces; nsid++)
        if (pst_nvme_namespace(&c, nsid, &ns) == PST_OK)
            printf("%s{\"nsid\": %u, \"lba_bytes\": %u, \"blocks\": %" PRIu64 "}", n++ > 0 ? ", " : "",
                   ns.nsid, ns.lba_bytes, ns.blocks);
    printf("]}\n");
    pst_nvme_close(&c);
    t.ops->close(&t);
}

/* ---- the parts of the driver ------------------------------------------------------------------------ */

static int tests;
static void ok(const char *what)
{
    printf("ok %d - %s\n", ++tests, what);
}

static void fill(void *memory, uint64_t bytes)
{
    uint64_t *word = memory;
    for (uint64_t i = 0; i < bytes / sizeof *word; i++)
        word[i] = draw(UINT64_MAX);
}

/* Writes with every kind of PRPs: one page, two pages, a list, a full list. Reads them back to memory with
 * another alignment, and checks that the memory around is unchanged. */
static void prp_lists(struct ssd *ssd)
{
    const uint32_t lba = ssd->ns.lba_bytes, most = (uint32_t)(ssd->c.transfer_bytes / lba);
    const uint32_t sizes[] = {1, 4096 / lba + 1, 8192 / lba, 12288 / lba, most - 1, most};
    const uint64_t offsets[] = {0, 4, 512, 2048, 4092};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++) {
            const uint64_t bytes = (uint64_t)sizes[s] * lba, from = MIB + offsets[o],
                           to = 3 * MIB + offsets[4 - o];
            fill(at(ssd, MIB), bytes + PST_PAGE);
            memset(at(ssd, 3 * MIB - PST_PAGE), CANARY, bytes + 3 * PST_PAGE);
            need(one(ssd, PST_NVME_WRITE, 7 * s, sizes[s], from) == PST_NVME_OK, "write");
            need(one(ssd, PST_NVME_READ, 7 * s, sizes[s], to) == PST_NVME_OK, "read");
            need(memcmp(at(ssd, from), at(ssd, to), bytes) == 0, "what was written is read");
            const unsigned char *before = at(ssd, to - 1), *after = at(ssd, to + bytes);
            need(*before == CANARY && *after == CANARY && memcmp(after, after + 1, PST_PAGE) == 0,
                 "nothing is written around it");
        }
    ok("PRP1, PRP2 and PRP lists, at any offset within a page");
}

static void mdts(struct ssd *ssd)
{
    const uint32_t most = (uint32_t)(ssd->c.transfer_bytes / ssd->ns.lba_bytes);
    struct pst_nvme_qp *qp = ssd->c.io[1];
    char text[64];
    need(one(ssd, PST_NVME_READ, 0, most, 0) == PST_NVME_OK, "a command of the largest size");
    /* adjacent lists make a list that is long enough for more than the controller accepts */
    struct pst_nvme_sqe sqe;
    pst_nvme_rw(&sqe, PST_NVME_READ, ssd->ns.nsid, 0, most + 1);
    need(pst_nvme_prp(&sqe, ssd->memory.iova, (uint64_t)(most + 1) * ssd->ns.lba_bytes, ssd->c.page, qp->prp,
                      qp->prp_iova, 2 * qp->prp_entries),
         "a longer list");
    pst_nvme_post(qp, qp->posted++, &sqe);
    pst_nvme_ring_sq(qp);
    const uint16_t status = next(ssd, 1, NULL);
    printf("# one block more: %s\n", pst_nvme_status_text(status, text));
    need(status == PST_NVME_BAD_FIELD, "a command of one block more is refused by the controller");
    ok("transfer_bytes is the most that the controller takes");
}

static void out_of_range(struct ssd *ssd)
{
    need(one(ssd, PST_NVME_READ, ssd->ns.blocks - 1, 1, 0) == PST_NVME_OK, "the last block");
    need(one(ssd, PST_NVME_READ, ssd->ns.blocks, 1, 0) == PST_NVME_LBA_RANGE, "one past it");
    need(one(ssd, PST_NVME_READ, ssd->ns.blocks - 1, 2, 0) == PST_NVME_LBA_RANGE, "across the end");
    need(one(ssd, PST_NVME_WRITE, UINT64_MAX - 1, 1, 0) == PST_NVME_LBA_RANGE, "far away");
    ok("an LBA out of range is an error of that command alone");
}

/* Small queues wrap after a few commands; ids and phases wrap after 65,536. */
static void wrap(struct ssd *ssd)
{
    const uint16_t qid = 2;
    struct pst_nvme_qp *qp;
    NEED(pst_nvme_queue_delete(&ssd->c, qid));
    NEED(pst_nvme_queue_new(&ssd->c, qid, 8, &qp));
    uint32_t *block = at(ssd, 0);
    for (uint64_t done = 0; done < 66000;) {
        const uint32_t n = pst_nvme_room(qp);
        uint64_t k = qp->posted;
        for (uint32_t i = 0; i < n; i++)
            (void)post(ssd, qid, PST_NVME_READ, (done + i) % 64, 1, (k + i) % 8 * ssd->ns.lba_bytes);
        pst_nvme_ring_sq(qp);
        for (uint32_t i = 0; i < n; i++)
            need(next(ssd, qid, NULL) == PST_NVME_OK, "a read");
        done += n;
    }
    need(block != NULL && qp->taken == qp->posted && qp->taken > 65536, "all came");
    NEED(pst_nvme_queue_delete(&ssd->c, qid));
    NEED(pst_nvme_queue_new(&ssd->c, qid, 64, &qp));
    ok("queue and ids wrap, past 65,536 commands");
}

/* Waits until the controller has begun with both queues, and returns how many completions have come.
 * (QEMU 7.2 crashes if it is reset between a doorbell and the fetch of the commands that it announced.) */
static int begun(struct ssd *ssd)
{
    struct pst_nvme_cqe cqe;
    int came = 0;
    for (uint16_t qid = 1; qid <= 2; qid++) {
        const struct pst_nvme_qp *qp = ssd->c.io[qid];
        for (int tries = 0; !pst_nvme_poll(qp, qp->taken, &cqe); tries++)
            need(tries < 1000000000, "a completion in time");
    }
    for (uint16_t qid = 1; qid <= 2; qid++) {
        const struct pst_nvme_qp *qp = ssd->c.io[qid];
        for (uint64_t k = qp->taken; k < qp->posted && pst_nvme_poll(qp, k, &cqe); k++)
            came++;
    }
    return came;
}

/* Resets a slow drive: what was in flight never completes, and then everything works as before. */
static void reset(struct ssd *ssd)
{
    int in_flight = 0;
    const uint32_t blocks = 65536 / ssd->ns.lba_bytes;
    fill(at(ssd, 0), 65536);
    need(one(ssd, PST_NVME_WRITE, 128, blocks, 0) == PST_NVME_OK, "write");
    for (int round = 0; round < 3; round++) {
        for (uint16_t qid = 1; qid <= 2; qid++) {
            for (int i = 0; i < 40; i++)
                (void)post(ssd, qid, PST_NVME_READ, 128, blocks, MIB + (uint64_t)i * 65536);
            pst_nvme_ring_sq(ssd->c.io[qid]);
        }
        in_flight += 80 - begun(ssd);
        NEED(pst_nvme_reset(&ssd->c));
        memset(at(ssd, MIB), CANARY, 2 * MIB);
        need(ssd->c.io[1]->posted == 0 && ssd->c.io[1]->taken == 0, "the queues are empty");
        need(one(ssd, PST_NVME_READ, 128, blocks, 4 * MIB) == PST_NVME_OK, "a read after the reset");
        need(memcmp(at(ssd, 0), at(ssd, 4 * MIB), 65536) == 0, "what was written before the reset");
        const unsigned char *idle = at(ssd, MIB);
        need(idle[0] == CANARY && memcmp(idle, idle + 1, 2 * MIB - 1) == 0, "nothing lands after the reset");
    }
    need(ssd->c.resets == 3, "three resets are counted");
    printf("# %d reads were in flight at three resets\n", in_flight);
    need(in_flight > 100, "reads in flight at a reset");
    ok("resets with reads in flight: none lands after them, and reads go on");
}

static void abort_one(struct ssd *ssd)
{
    bool aborted = true;
    const uint16_t cid = post(ssd, 1, PST_NVME_READ, 0, 1, 0);
    uint16_t came;
    pst_nvme_ring_sq(ssd->c.io[1]);
    NEED(pst_nvme_abort(&ssd->c, 1, cid, &aborted));
    const uint16_t status = next(ssd, 1, &came);
    need(came == cid && status == (aborted ? PST_NVME_ABORTED : PST_NVME_OK),
         "the command comes back, as the abort said");
    ok("abort");
}

static void flush(struct ssd *ssd)
{
    for (int i = 0; i < 3; i++)
        NEED(pst_nvme_flush(&ssd->c, ssd->ns.nsid));
    need(ssd->c.volatile_cache, "the drive has a cache");
    ok("flush");
}

static void refusals(struct ssd *ssd)
{
    struct pst_nvme_namespace ns;
    struct pst_nvme_qp *qp;
    uint64_t iova;
    struct pst_nvme_transport second;
    need(pst_nvme_namespace(&ssd->c, 0, &ns) == PST_E_ARG, "namespace 0");
    need(pst_nvme_namespace(&ssd->c, 200, &ns) == PST_E_ARG, "a namespace that is not there");
    need(pst_nvme_queue_new(&ssd->c, 1, 64, &qp) == PST_E_ARG, "a queue that is there");
    need(pst_nvme_queue_new(&ssd->c, 200, 64, &qp) == PST_E_ARG, "a queue that was not granted");
    need(pst_nvme_queue_delete(&ssd->c, 200) == PST_E_ARG, "a queue that is not there");
    need(pst_nvme_vfio_map_gpu(&ssd->t, -1, MIB, &iova) == PST_E_UNSUPPORTED, "GPU memory");
    printf("# %s\n", pst_error_text());
    need(pst_nvme_vfio_connect(&second, ssd->t.what) == PST_E_STATE, "a second driver");
    printf("# %s\n", pst_error_text());
    ok("what cannot be is refused");
}

static void conform(const char *address)
{
    struct ssd ssd;
    start(&ssd, address, 2, 64, 8 * MIB);
    need(ssd.c.queues == 2 && ssd.c.io[1]->depth == 64, "two queues of 64");
    prp_lists(&ssd);
    mdts(&ssd);
    out_of_range(&ssd);
    wrap(&ssd);
    abort_one(&ssd);
    flush(&ssd);
    refusals(&ssd);
    finish(&ssd);
    start(&ssd, address, 1, 2, MIB);
    need(one(&ssd, PST_NVME_READ, 0, 1, 0) == PST_NVME_OK, "a read after all was closed and opened again");
    finish(&ssd);
    ok("closed and opened again");
}

static void resets(const char *address)
{
    struct ssd ssd;
    start(&ssd, address, 2, 64, 8 * MIB);
    reset(&ssd);
    finish(&ssd);
}

/* ---- soak ------------------------------------------------------------------------------------------- */

#define QUEUES 2
#define DEPTH 32                     /* of these, depth - 1 are in flight */
#define SLOTS (QUEUES * (DEPTH - 1)) /* each has a slice of the namespace and one command in flight */

struct slot {
    uint64_t lba; /* first block of the command in flight */
    uint32_t blocks;
    uint64_t at; /* its byte of the memory */
    uint16_t qid, cid;
    bool write;
};

struct target {
    struct ssd ssd;
    char *shadow; /* the content that the namespace should have */
    uint64_t bytes;
    uint64_t slice; /* blocks of a slice */
    uint64_t room;  /* memory of a slot, in bytes */
    struct slot slot[SLOTS];
};

static uint64_t reads_left, writes_left, bytes_read, bytes_written;

static uint32_t draw_blocks(const struct target *t)
{
    const uint32_t lba = t->ssd.ns.lba_bytes;
    const uint64_t kind = draw(100), most = kind < 90 ? 4096 : kind < 99 ? 65536 : t->ssd.c.transfer_bytes;
    return 1 + (uint32_t)draw(most < lba ? 1 : most / lba);
}

/* Gives the slot its next command. False: none is left. */
static bool launch(struct target *t, int k)
{
    struct slot *s = &t->slot[k];
    const uint32_t lba = t->ssd.ns.lba_bytes;
    if (reads_left + writes_left == 0)
        return false;
    s->write = draw(reads_left + writes_left) < writes_left;
    s->blocks = draw_blocks(t);
    s->lba = (uint64_t)k * t->slice + draw(t->slice - s->blocks + 1);
    s->at = (uint64_t)k * t->room + PST_PAGE + 4 * draw(PST_PAGE / 4);
    *(s->write ? &writes_left : &reads_left) -= 1;
    if (s->write) {
        uint64_t value = draw(UINT64_MAX);
        for (uint64_t i = 0; i < (uint64_t)s->blocks * lba; i += sizeof value, value += 0x9e3779b97f4a7c15u)
            memcpy(at(&t->ssd, s->at + i), &value, sizeof value);
    }
    *(unsigned char *)at(&t->ssd, s->at - 1) = CANARY;
    *(unsigned char *)at(&t->ssd, s->at + (uint64_t)s->blocks * lba) = CANARY;
    s->cid = post(&t->ssd, s->qid, s->write ? PST_NVME_WRITE : PST_NVME_READ, s->lba, s->blocks, s->at);
    return true;
}

static void check(struct target *t, struct slot *s)
{
    const uint64_t bytes = (uint64_t)s->blocks * t->ssd.ns.lba_bytes;
    char *shadow = t->shadow + s->lba * t->ssd.ns.lba_bytes;
    if (s->write) {
        memcpy(shadow, at(&t->ssd, s->at), bytes);
        bytes_written += bytes;
        return;
    }
    const unsigned char *before = at(&t->ssd, s->at - 1), *after = at(&t->ssd, s->at + bytes);
    if (memcmp(shadow, at(&t->ssd, s->at), bytes) != 0 || *before != CANARY || *after != CANARY) {
        printf("not ok - %s: read of %u blocks at LBA %" PRIu64 " is not what the kernel sees there\n",
               t->ssd.t.what, s->blocks, s->lba);
        exit(1);
    }
    bytes_read += bytes;
}

/* Takes the completions of one queue and posts as many new commands, with one doorbell for each direction. */
static int turn(struct target *t, uint16_t qid)
{
    struct pst_nvme_qp *qp = t->ssd.c.io[qid];
    struct pst_nvme_cqe cqe;
    uint64_t n = 0;
    int came[DEPTH], posted = 0;
    for (; n < DEPTH && pst_nvme_poll(qp, qp->taken + n, &cqe); n++) {
        need(PST_NVME_STATUS(cqe.status) == PST_NVME_OK, "a command that succeeds");
        need(pst_nvme_take(qp, qp->taken + n, cqe.cid), "a completion of a command that is in flight");
        int k = (qid - 1) * (DEPTH - 1);
        const int end = k + DEPTH - 1;
        while (k < end && t->slot[k].cid != cqe.cid)
            k++;
        need(k < end, "a completion of a slot");
        check(t, &t->slot[k]);
        came[n] = k;
    }
    if (n == 0)
        return 0;
    pst_nvme_ring_cq(qp, n);
    for (uint64_t i = 0; i < n; i++)
        posted += launch(t, came[i]);
    if (posted > 0)
        pst_nvme_ring_sq(qp);
    return (int)n - posted;
}

static void open_target(struct target *t, char *spec)
{
    char *address = strchr(spec, '=');
    need(address != NULL, "IMAGE=PCI");
    *address++ = '\0';
    start(&t->ssd, address, QUEUES, DEPTH, PST_PAGE);
    pst_nvme_dma_free(&t->ssd.memory);
    t->room = pst_align_up(t->ssd.c.transfer_bytes, PST_PAGE) + 3 * PST_PAGE;
    NEED(pst_nvme_dma_new(&t->ssd.memory, &t->ssd.t, SLOTS * t->room));
    t->bytes = t->ssd.ns.blocks * t->ssd.ns.lba_bytes;
    t->slice = t->ssd.ns.blocks / SLOTS;
    int fd = open(spec, O_RDWR | O_CLOEXEC);
    struct stat st;
    need(fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == t->bytes, "the kernel's copy is as large");
    t->shadow = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    need(t->shadow != MAP_FAILED, "mapping the kernel's copy");
    (void)close(fd);
}

static void soak(int n, char **specs)
{
    static struct target target[4];
    int running = 0;
    need(n >= 1 && n <= 4, "1 to 4 drives");
    for (int i = 0; i < n; i++) {
        open_target(&target[i], specs[i]);
        for (int k = 0; k < SLOTS; k++) {
            target[i].slot[k].qid = (uint16_t)(1 + k / (DEPTH - 1));
            running += launch(&target[i], k);
        }
        for (uint16_t qid = 1; qid <= QUEUES; qid++)
            pst_nvme_ring_sq(target[i].ssd.c.io[qid]);
    }
    for (int idle = 0; running > 0; idle++) {
        for (int i = 0; i < n; i++)
            for (uint16_t qid = 1; qid <= QUEUES; qid++) {
                const uint64_t taken = target[i].ssd.c.io[qid]->taken;
                running -= turn(&target[i], qid);
                idle = target[i].ssd.c.io[qid]->taken != taken ? 0 : idle;
            }
        need(idle < DEADLINE_MS, "completions in time");
        if (idle > 10)
            (void)usleep(1000);
    }
    for (int i = 0; i < n; i++) {
        for (uint16_t qid = 1; qid <= QUEUES; qid++) {
            const struct pst_nvme_qp *qp = target[i].ssd.c.io[qid];
            printf("# %s queue %u: %" PRIu64 " commands, %" PRIu64 " and %" PRIu64 " doorbells\n",
                   target[i].ssd.t.what, qid, qp->taken, qp->sq_rings, qp->cq_rings);
        }
        NEED(pst_nvme_flush(&target[i].ssd.c, 1));
        finish(&target[i].ssd);
    }
    printf("# %" PRIu64 " bytes read, %" PRIu64 " written\n", bytes_read, bytes_written);
    printf("ok 1 - every read is what the kernel sees\n");
}

int main(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 3 && strcmp(argv[1], "identify") == 0)
        identify(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "conform") == 0)
        conform(argv[2]);
    else if (argc == 3 && strcmp(argv[1], "reset") == 0)
        resets(argv[2]);
    else if (argc >= 5 && strcmp(argv[1], "soak") == 0) {
        reads_left = strtoull(argv[2], NULL, 10);
        writes_left = strtoull(argv[3], NULL, 10);
        soak(argc - 4, argv + 4);
    } else {
        fprintf(stderr, "usage: see the head of drive.c\n");
        return 2;
    }
    return 0;
}

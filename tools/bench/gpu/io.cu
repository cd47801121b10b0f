/* io.cu: gpu io --way async|sync|batch [--ssds N] [--bytes B] [--queues Q] [--depth D] [--batch N] [--preset
 * P]
 *               [--dilate F] [--workers W] [--submit-threads P_s] [--complete-blocks C] [--complete-threads
 * T]
 *               [--batch-blocks B] [--batch-threads T] [--warps W] [--write] [--beside]
 * Kernels read from emulated drives (kernels/nvme.h): a batch submitted and completed, again and again;
 * every byte of the first and of the last is checked. --write: they write, and at the end all is read again.
 * Prints one line of JSON: rates are those of undilated drives.
 * --beside: also what GEMMs on another stream lose to it (Legend, Figure 20). */
#include "tools/bench/gpu/gpu.cuh"

extern "C" {
#include "common/error.h"
#include "common/nvme/driver/controller.h"
#include "common/nvme/emulated/emulated.h"
#include "common/nvme/stack/stack.h"
}

#include <cstring>

namespace
{
enum {
    SPAN = 64 << 20, /* bytes of each SSD that are read */
    LBA = 512,
    TIMEOUT_MS = 10000,
    ROUNDS_MAX = 256,
    GEMMS = 20,
    GEMM_SIZE = 4096,
    GEMM_TINY = 64,
};

struct io_options {
    const char *way, *preset;
    uint32_t ssds, bytes, queues, depth, batch, workers;
    double dilate;
    struct pst_k_nvme_shape shape;
    bool beside, write;
};

struct rig {
    struct gpu g;
    struct io_options o;
    struct pst_nvme_emulated emulated;
    struct pst_nvme_transport t[PST_K_NVME_DRIVE_SSDS_MAX];
    struct pst_nvme_controller c[PST_K_NVME_DRIVE_SSDS_MAX];
    uint64_t iova[PST_K_NVME_DRIVE_SSDS_MAX];
    struct pst_nvme_dma memory;
    struct pst_k_nvme_drive *drive;
    struct pst_k_nvme_record *records;
    struct pst_nvme_io *ios;
    uint32_t round;
};

void need(pst_rc rc)
{
    if (rc != PST_OK)
        STOP("%s", pst_error_text());
}

void start_drives(struct rig *r)
{
    const struct io_options *o = &r->o;
    char json[512];
    (void)snprintf(json, sizeof json,
                   "{\"ssds\": %u, \"workers\": %u, \"queues\": %u, \"preset\": \"%s\", \"dilate\": %g, "
                   "\"namespaces\": [{\"kind\": \"ram\", \"bytes\": %d, \"filled\": true}]}",
                   o->ssds, o->workers, o->queues, o->preset, o->dilate, (int)SPAN);
    need(pst_nvme_emulated_start(&r->emulated, json));
    need(pst_nvme_dma_new(&r->memory, NULL, (uint64_t)o->batch * o->bytes));
    for (uint32_t i = 0; i < o->ssds; i++) {
        struct pst_nvme_config config = {};
        config.queues = o->queues;
        config.depth = o->depth;
        need(pst_nvme_emulated_connect(&r->t[i], &r->emulated, i));
        need(pst_nvme_open(&r->c[i], &r->t[i], &config));
        need(r->t[i].ops->dma_map(&r->t[i], r->memory.base, r->memory.bytes, &r->iova[i]));
    }
}

enum pst_nvme_way way_of(const char *name)
{
    enum pst_nvme_way way;
    need(pst_nvme_way_named(name, &way));
    return way;
}

void make_drive(struct rig *r)
{
    struct pst_nvme_qp *pairs[PST_K_NVME_DRIVE_QUEUES_MAX];
    struct pst_k_nvme_shared shared[PST_K_NVME_DRIVE_QUEUES_MAX + PST_K_NVME_DRIVE_SSDS_MAX + 1] = {};
    struct pst_k_nvme_drive_options options = {};
    char why[PST_TWIN_WHY_BYTES];
    uint32_t n = 0, s = 0;
    shared[s++] = {r->memory.base, r->memory.bytes, false};
    for (uint32_t i = 0; i < r->o.ssds; i++) {
        shared[s++] = {const_cast<void *>(r->t[i].regs), pst_align_up(r->t[i].regs_bytes, PST_PAGE), false};
        for (uint32_t qid = 1; qid <= r->o.queues; qid++) {
            uint64_t bytes;
            if (!(pairs[n++] = r->c[i].io[qid]))
                STOP("SSD %u has no queue %u", i, qid);
            pst_nvme_queue_memory(r->c[i].io[qid], &shared[s].at, &bytes);
            shared[s++].bytes = bytes;
        }
    }
    options.queue = r->g.q;
    options.way = way_of(r->o.way);
    options.pairs = pairs;
    options.ssds = r->o.ssds;
    options.queues_each = r->o.queues;
    options.page = r->c[0].page;
    options.batches = 1;
    options.most = r->o.batch;
    options.timeout_ms = TIMEOUT_MS;
    options.shared = shared;
    options.shareds = s;
    if (r->g.cuda->nvme->drive_new(&options, &r->drive, why) != PST_OK)
        STOP("%s", why);
}

void send_ios(struct rig *r)
{
    (void)r->g.cuda->copy(r->g.q, r->g.cuda->nvme->ios(r->drive, 0), r->ios, r->o.batch * sizeof *r->ios);
    gpu_wait(&r->g);
}

/* Makes reads that are spread evenly over the queues and grouped by queue, as `batch` needs it. Writes go to
 * different places. */
void make_reads(struct rig *r)
{
    const uint32_t queues = r->o.ssds * r->o.queues, n = r->o.batch;
    uint32_t begin[PST_K_NVME_DRIVE_QUEUES_MAX + 1];
    uint64_t random = 88172645463325252u;
    r->ios = static_cast<struct pst_nvme_io *>(calloc(n, sizeof *r->ios));
    for (uint32_t q = 0; q <= queues; q++)
        begin[q] = (uint32_t)((uint64_t)n * q / queues);
    for (uint32_t q = 0; q < queues; q++) {
        for (uint32_t i = begin[q]; i < begin[q + 1]; i++) {
            struct pst_nvme_io *io = &r->ios[i];
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            io->lba = r->o.write ? (uint64_t)(i - begin[q - q % r->o.queues]) * (r->o.bytes / LBA)
                                 : random % ((SPAN - r->o.bytes) / LBA + 1);
            io->iova = r->iova[q / r->o.queues] + (uint64_t)i * r->o.bytes;
            io->bytes = r->o.bytes;
            io->nsid = 1;
            io->queue = (uint16_t)q;
            io->opcode = r->o.write ? PST_NVME_WRITE : PST_NVME_READ;
            io->lba_shift = 9;
        }
    }
    send_ios(r);
    (void)r->g.cuda->copy(r->g.q, r->g.cuda->nvme->begin(r->drive, 0), begin, (queues + 1) * sizeof *begin);
    gpu_wait(&r->g);
}

void call_submit(struct rig *r)
{
    if (r->g.cuda->nvme->submit(r->drive, 0, {NULL, (int64_t)r->o.batch}, &r->o.shape) != PST_OK)
        gpu_wait(&r->g);
}

void call_round(void *context)
{
    struct rig *r = static_cast<struct rig *>(context);
    call_submit(r);
    (void)r->g.cuda->nvme->complete(r->drive, 0, &r->o.shape, &r->records[r->round++ % ROUNDS_MAX], 1);
}

/* A word of what is written, which is not what the drives had. */
uint64_t written(const struct rig *r, uint32_t i, uint32_t at)
{
    return ~pst_nvme_emulated_pattern(r->ios[i].queue / r->o.queues, 1, r->ios[i].lba * LBA + at);
}

void fill_rows(struct rig *r)
{
    for (uint32_t i = 0; i < r->o.batch; i++)
        for (uint32_t at = 0; at < r->o.bytes; at += 8) {
            const uint64_t word = written(r, i, at);
            memcpy(static_cast<char *>(r->memory.base) + (uint64_t)i * r->o.bytes + at, &word, sizeof word);
        }
}

void check_records(struct rig *r)
{
    gpu_wait(&r->g);
    const uint32_t rounds = r->round < ROUNDS_MAX ? r->round : (uint32_t)ROUNDS_MAX;
    for (uint32_t i = 0; i < rounds; i++) {
        const struct pst_k_nvme_record *d = &r->records[i];
        if (d->ended != r->o.batch || d->failed || d->late || d->strange)
            STOP("of %u reads %u ended, %u failed, %u are late, %u completions are strange", r->o.batch,
                 d->ended, d->failed, d->late, d->strange);
    }
    r->round = 0;
}

void check(struct rig *r)
{
    check_records(r);
    if (r->ios[0].opcode == PST_NVME_WRITE)
        return;
    for (uint32_t i = 0; i < r->o.batch; i++) {
        const struct pst_nvme_io *io = &r->ios[i];
        const char *row = static_cast<char *>(r->memory.base) + (uint64_t)i * r->o.bytes;
        for (uint32_t at = 0; at < io->bytes; at += 8) {
            uint64_t word;
            memcpy(&word, row + at, sizeof word);
            const uint64_t want =
                r->o.write ? written(r, i, at)
                           : pst_nvme_emulated_pattern(io->queue / r->o.queues, 1, io->lba * LBA + at);
            if (word != want)
                STOP("read %u: byte %u is not the drive's", i, at);
        }
    }
    memset(r->memory.base, 0, r->memory.bytes);
}

/* Reads what was written. */
void read_again(struct rig *r)
{
    memset(r->memory.base, 0, r->memory.bytes);
    for (uint32_t i = 0; i < r->o.batch; i++)
        r->ios[i].opcode = PST_NVME_READ;
    send_ios(r);
}

/* ---- what a compute kernel beside loses ------------------------------------------------------------------
 */

struct compute {
    struct gpu g;
    float *a, *b;
    int64_t n;
};

void call_gemms(void *context)
{
    const struct compute *c = static_cast<const struct compute *>(context);
    for (int i = 0; i < GEMMS; i++)
        c->g.cuda->gemm(c->g.q, false, false, c->n, c->n, c->n, 1, c->a, c->n, c->a, c->n, 0, c->b, c->n, 1);
}

/* gpu_seconds while the drives are kept busy. */
struct both {
    struct rig *r;
    struct compute *c;
    uint32_t rounds;
};

void call_both(void *context)
{
    const struct both *both = static_cast<const struct both *>(context);
    for (uint32_t i = 0; i < both->rounds; i++)
        call_round(both->r);
    call_gemms(both->c);
}

double loss_beside(struct rig *r, double round_s)
{
    struct compute c = {};
    c.n = ON_GPU ? GEMM_SIZE : GEMM_TINY;
    gpu_open(&c.g, 1024, c.n);
    c.a = static_cast<float *>(gpu_memory(&c.g, PST_TWIN_MEMORY_DEVICE, (size_t)(c.n * c.n) * 4, NULL));
    c.b = static_cast<float *>(gpu_memory(&c.g, PST_TWIN_MEMORY_DEVICE, (size_t)(c.n * c.n) * 4, NULL));
    const double alone = gpu_seconds(&c.g, call_gemms, &c);
    const double wanted = round_s > 0 ? 1.5 * alone / round_s + 2 : 2;
    struct both both = {r, &c, wanted < 64 ? (uint32_t)wanted : 64};
    const double beside = gpu_seconds(&c.g, call_both, &both);
    gpu_wait(&r->g);
    gpu_close(&c.g);
    return beside > 0 ? 1 - alone / beside : 0;
}

void print(const struct rig *r, double round_s, double submit_s, double loss)
{
    if (!ON_GPU) {
        printf("{\"checked\": %u}\n", r->o.batch);
        return;
    }
    uint64_t rings = 0;
    for (uint32_t i = 0; i < r->o.ssds; i++)
        for (uint32_t qid = 1; qid <= r->o.queues; qid++)
            rings += r->c[i].io[qid]->sq_rings;
    printf("{\"way\": \"%s\", \"write\": %s, \"ssds\": %u, \"bytes\": %u, \"batch\": %u, \"iops\": %.6g, "
           "\"round_us\": %.6g, "
           "\"submit_us\": %.6g, \"sq_doorbells\": %llu",
           r->o.way, r->o.write ? "true" : "false", r->o.ssds, r->o.bytes, r->o.batch,
           (double)r->o.batch / round_s * r->o.dilate, round_s * 1e6, submit_s * 1e6,
           (unsigned long long)rings);
    if (r->o.beside)
        printf(", \"loss\": %.4f", loss);
    printf("}\n");
}

/* The time of submission alone. Completions wait in the queues, so a whole batch must fit. */
double submission(struct rig *r)
{
#ifdef PST_HOST_BUILD
    (void)r;
    return 0;
#else
    cudaEvent_t begin, end;
    float ms = 0, best = 0;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    for (int i = 0; i < 5; i++) {
        CUDA(cudaEventRecord(begin, r->g.stream));
        call_submit(r);
        CUDA(cudaEventRecord(end, r->g.stream));
        (void)r->g.cuda->nvme->complete(r->drive, 0, &r->o.shape, &r->records[0], 1);
        gpu_wait(&r->g);
        CUDA(cudaEventElapsedTime(&ms, begin, end));
        best = i == 0 || ms < best ? ms : best;
    }
    CUDA(cudaEventDestroy(begin));
    CUDA(cudaEventDestroy(end));
    return (double)best * 1e-3;
#endif
}

void stop(struct rig *r)
{
    r->g.cuda->nvme->drive_free(r->drive);
    r->g.cuda->release(PST_TWIN_MEMORY_PINNED, r->records);
    gpu_wait(&r->g);
    gpu_close(&r->g);
    for (uint32_t i = 0; i < r->o.ssds; i++) {
        pst_nvme_close(&r->c[i]);
        r->t[i].ops->close(&r->t[i]);
    }
    pst_nvme_dma_free(&r->memory);
    pst_nvme_emulated_stop(&r->emulated);
    free(r->ios);
}

struct word {
    const char *name;
    uint32_t *number;
};

struct io_options parse(int argc, char **argv)
{
    struct io_options o = {};
    o.way = "async";
    o.preset = "optane";
    o.ssds = o.queues = 1;
    o.bytes = 4096;
    o.depth = 1024;
    o.batch = 1000;
    o.workers = 1;
    o.dilate = 1;
    const struct word words[] = {{"--ssds", &o.ssds},
                                 {"--bytes", &o.bytes},
                                 {"--queues", &o.queues},
                                 {"--depth", &o.depth},
                                 {"--batch", &o.batch},
                                 {"--workers", &o.workers},
                                 {"--submit-threads", &o.shape.submit_threads},
                                 {"--complete-blocks", &o.shape.complete_blocks},
                                 {"--complete-threads", &o.shape.complete_threads},
                                 {"--batch-blocks", &o.shape.batch_blocks},
                                 {"--batch-threads", &o.shape.batch_threads},
                                 {"--warps", &o.shape.warps}};
    for (int i = 0; i < argc; i++) {
        const bool beside = strcmp(argv[i], "--beside") == 0, write = strcmp(argv[i], "--write") == 0;
        bool known = beside || write;
        o.beside = o.beside || beside;
        o.write = o.write || write;
        if (known)
            continue;
        if (i + 1 == argc)
            STOP("%s: expected an option and its value", argv[i]);
        for (const struct word &w : words)
            if (strcmp(argv[i], w.name) == 0) {
                *w.number = (uint32_t)strtoul(argv[i + 1], NULL, 10);
                known = true;
            }
        if (strcmp(argv[i], "--way") == 0)
            o.way = argv[i + 1];
        else if (strcmp(argv[i], "--preset") == 0)
            o.preset = argv[i + 1];
        else if (strcmp(argv[i], "--dilate") == 0)
            o.dilate = strtod(argv[i + 1], NULL);
        else if (!known)
            STOP("%s: no such option", argv[i]);
        i++;
    }
    if (o.ssds < 1 || o.ssds > PST_K_NVME_DRIVE_SSDS_MAX || o.queues < 1 ||
        o.ssds * o.queues > PST_K_NVME_DRIVE_QUEUES_MAX || o.batch < 1 || o.bytes % LBA != 0 ||
        o.bytes < LBA || o.bytes > SPAN || o.dilate <= 0 ||
        (o.write && (uint64_t)(o.batch / o.ssds + 1) * o.bytes > SPAN))
        STOP("expected 1 to %d SSDs, up to %d queues, whole blocks of %d bytes", PST_K_NVME_DRIVE_SSDS_MAX,
             PST_K_NVME_DRIVE_QUEUES_MAX, (int)LBA);
    return o;
}
} // namespace

int gpu_io(int argc, char **argv)
{
    struct rig *r = new struct rig();
    r->o = parse(argc, argv);
    gpu_open(&r->g, 1024, 64);
    start_drives(r);
    make_drive(r);
    make_reads(r);
    r->records = static_cast<struct pst_k_nvme_record *>(
        gpu_memory(&r->g, PST_TWIN_MEMORY_PINNED, ROUNDS_MAX * sizeof *r->records, NULL));
    if (r->o.write)
        fill_rows(r);
    call_round(r);
    check(r);
    const double round_s = gpu_seconds(&r->g, call_round, r);
    check(r);
    const double submit_s = submission(r), loss = r->o.beside ? loss_beside(r, round_s) : 0;
    if (r->o.write)
        read_again(r);
    call_round(r);
    check(r);
    char why[PST_TWIN_WHY_BYTES];
    if (r->g.cuda->nvme->give_back(r->drive, why) != PST_OK)
        STOP("%s", why);
    print(r, round_s, submit_s, loss);
    stop(r);
    delete r;
    return 0;
}

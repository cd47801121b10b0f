/* gpu.c: launches the kernels that drive the queues, and reads what they report. */
#include "stages/lib/io/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/array_id.h"
#include "common/store/dataset/rows.h"
#include "kernels/nvme.h"
#include "stages/lib/device/device.h"
#include "stages/lib/io/engine.h"
#include "common/error.h"

#define GROUPS 8                /* groups in flight: the parts of a slot and of the slots after it */
#define STAGING_MAX (64u << 20) /* bytes for rows that do not fill blocks, of all groups together */
#define WARP 32u
#define SUBMIT_THREADS 1024u

static_assert(PST_NVME_SSDS_MAX <= PST_K_NVME_DRIVE_SSDS_MAX, "a layout has room for all drives");

struct pst_io_gpu {
    struct pst_device device;
    struct pst_io_drives *drives;
    struct pst_k_nvme_drive *drive;
    struct pst_k_nvme_record *records; /* GROUPS of them */
    uint32_t *stop;
    uint32_t requests; /* most requests of a group */
    struct pst_nvme_dma staging;
    struct pst_k_nvme_layout layout;
    bool owns; /* the GPU owns the queues */
    struct pst_io_group *flying[GROUPS];
    uint32_t nflying;
    uint64_t sequence, commands, turns, sq_doorbells, cq_doorbells;
};

/* ---- what the kernels are told ---------------------------------------------------------------------- */

static void lay_out(struct pst_k_nvme_layout *l, const struct pst_io_drives *drives,
                    const struct pst_io_config *c)
{
    const struct pst_nvme_controller *first = &drives->c[0];
    uint64_t most = first->transfer_bytes;
    for (uint32_t i = 1; i < drives->n; i++)
        most = most < drives->c[i].transfer_bytes ? most : drives->c[i].transfer_bytes;
    l->lba_shift = (uint8_t)drives->lba_shift;
    most = most < (uint64_t)PST_NVME_LBAS_MAX << l->lba_shift ? most
                                                              : (uint64_t)PST_NVME_LBAS_MAX << l->lba_shift;
    l->transfer_bytes = (uint32_t)(most >> l->lba_shift << l->lba_shift);
    l->writable = c->nvme->writable;
    memcpy(l->arrays, c->arrays, sizeof l->arrays);
    memcpy(l->files, drives->extents, sizeof l->files);
}

static uint64_t divisor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Bytes of the blocks around a row, wherever it begins. 0: rows fill blocks, or are too large. */
static uint32_t staging_of(const struct pst_k_nvme_layout *l, int array)
{
    const uint64_t row = l->arrays[array].rows_in.unit, block = 1ull << l->lba_shift;
    const uint64_t each = pst_align_up(row + block - divisor(row, block), block);
    return row % block == 0 || each > l->transfer_bytes || each > STAGING_MAX / GROUPS ? 0 : (uint32_t)each;
}

/* Enough for a row of features, of each vertex type. */
static uint32_t staging_each(const struct pst_k_nvme_layout *l)
{
    uint32_t most = staging_of(l, PST_ARRAY_FEATURES);
    for (int k = 0; l->arrays[PST_ARRAY_FEATURES].rows == 0 && k < PST_ROWS_TYPES_MAX; k++) {
        const uint32_t each = staging_of(l, PST_REQUEST_OF_TYPE(k));
        most = most > each ? most : each;
    }
    return most;
}

static uint32_t merge_bytes(const struct pst_k_nvme_layout *l, uint32_t each, uint64_t coalesce_bytes)
{
    const uint64_t wanted = coalesce_bytes < each ? each : coalesce_bytes;
    return wanted < l->transfer_bytes ? (uint32_t)wanted : l->transfer_bytes;
}

static pst_rc make_staging(struct pst_io_gpu *g, uint64_t coalesce_bytes)
{
    const uint32_t each = staging_each(&g->layout);
    if (each == 0)
        return PST_OK;
    const uint32_t room = STAGING_MAX / GROUPS / each;
    g->requests = g->requests < room ? g->requests : room;
    pst_rc rc = pst_nvme_dma_new(&g->staging, NULL, (uint64_t)GROUPS * g->requests * each);
    for (uint32_t i = 0; rc == PST_OK && i < g->drives->n; i++) {
        struct pst_nvme_transport *t = &g->drives->t[i];
        rc = t->ops->dma_map(t, g->staging.base, g->staging.bytes, &g->layout.staging_iova[i]);
    }
    g->layout.staging = g->staging.base;
    g->layout.staging_each = each;
    g->layout.merge_bytes = merge_bytes(&g->layout, each, coalesce_bytes);
    return rc;
}

/* ---- opening and closing ---------------------------------------------------------------------------- */

struct sharing {
    struct pst_nvme_qp *pairs[PST_K_NVME_DRIVE_QUEUES_MAX];
    struct pst_k_nvme_shared shared[PST_K_NVME_DRIVE_QUEUES_MAX + PST_NVME_SSDS_MAX + 1];
    uint32_t each, n;
};

/* Lists the memory that the GPU and the drives share, without the slots: queues, registers and staging. */
static void share(const struct pst_io_gpu *g, struct sharing *s)
{
    const struct pst_io_drives *d = g->drives;
    s->each = PST_K_NVME_DRIVE_QUEUES_MAX / d->n;
    for (uint32_t i = 0; i < d->n; i++)
        s->each = s->each < d->c[i].queues ? s->each : d->c[i].queues;
    for (uint32_t i = 0; i < d->n; i++) {
        const struct pst_nvme_transport *t = &d->t[i];
        s->shared[s->n++] = (struct pst_k_nvme_shared){.at = (void *)(uintptr_t)t->regs,
                                                       .bytes = pst_nvme_registers_touch(&d->c[i], s->each),
                                                       .io_memory = strcmp(t->ops->name, "vfio") == 0};
        for (uint32_t k = 0; k < s->each; k++) {
            uint64_t bytes;
            s->pairs[i * s->each + k] = d->c[i].io[k + 1];
            pst_nvme_queue_memory(d->c[i].io[k + 1], &s->shared[s->n].at, &bytes);
            s->shared[s->n++].bytes = bytes;
        }
    }
    if (g->staging.base != NULL)
        s->shared[s->n++] = (struct pst_k_nvme_shared){.at = g->staging.base, .bytes = g->staging.bytes};
}

static pst_rc make_drive(struct pst_io_gpu *g, const struct pst_io_config *config)
{
    struct sharing s = {.n = 0};
    enum pst_nvme_way way;
    char why[PST_TWIN_WHY_BYTES] = "";
    pst_rc rc = pst_nvme_way_named(config->nvme->stack, &way);
    if (rc != PST_OK)
        return rc;
    share(g, &s);
    const struct pst_k_nvme_drive_options options = {.queue = g->device.q,
                                                     .way = way,
                                                     .pairs = s.pairs,
                                                     .ssds = g->drives->n,
                                                     .queues_each = s.each,
                                                     .page = g->drives->c[0].page,
                                                     .batches = GROUPS,
                                                     .most = g->requests,
                                                     .timeout_ms = config->nvme->timeout_ms,
                                                     .shared = s.shared,
                                                     .shareds = s.n,
                                                     .layout = &g->layout,
                                                     .stop = g->stop};
    rc = g->device.twin->nvme->drive_new(&options, &g->drive, why);
    g->owns = rc == PST_OK;
    if (rc == PST_E_UNSUPPORTED)
        return pst_fail(rc,
                        "%s cannot drive %s: %s; `penstock probe` shows what is missing on this machine; or "
                        "place the disk stage on cpu:0",
                        g->device.name, g->drives->t[0].what, why);
    return rc == PST_OK ? pst_io_gpu_give_back(g) : pst_fail(rc, "%s: %s", g->device.name, why);
}

static pst_rc open_device(struct pst_io_gpu *g, const char *place)
{
    void *at = NULL;
    pst_rc rc = pst_device_open(&g->device, place);
    if (rc == PST_OK && g->device.twin->nvme == NULL)
        rc = pst_fail(PST_E_ARG, "cannot control NVMe queues on the device %s; expected cuda:N", place);
    rc = rc == PST_OK ? pst_device_queue(&g->device,
                                         (struct pst_queue_options){.most = 1, .columns = 1, .first = true})
                      : rc;
    if (rc == PST_OK)
        rc = pst_device_take(&g->device, PST_TWIN_MEMORY_PINNED, GROUPS * sizeof *g->records + PST_CACHE_LINE,
                             "records of reads", &at);
    if (rc == PST_OK) {
        g->records = memset(at, 0, GROUPS * sizeof *g->records + PST_CACHE_LINE);
        g->stop = (uint32_t *)(void *)(g->records + GROUPS);
    }
    return rc;
}

pst_rc pst_io_gpu_open(struct pst_io_gpu **out, struct pst_io_drives *drives,
                       const struct pst_io_config *config, struct pst_io_backend *b)
{
    uint64_t largest = 0;
    struct pst_io_gpu *g = *out = calloc(1, sizeof *g);
    if (g == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the NVMe queues of the GPU");
    g->drives = drives;
    for (int i = 0; i < config->nregions; i++)
        largest = config->regions[i].iov_len > largest ? config->regions[i].iov_len : largest;
    largest /= sizeof(struct pst_request);
    g->requests = largest < 1                       ? 1
                  : largest < PST_IO_GROUP_REQUESTS ? (uint32_t)largest
                                                    : PST_IO_GROUP_REQUESTS;
    lay_out(&g->layout, drives, config);
    pst_rc rc = open_device(g, config->nvme->gpu);
    rc = rc == PST_OK ? make_staging(g, config->nvme->coalesce_bytes) : rc;
    rc = rc == PST_OK ? make_drive(g, config) : rc;
    b->groups = GROUPS;
    b->group_requests = g->requests;
    return rc;
}

void pst_io_gpu_stop(struct pst_io_gpu *g)
{
    if (g != NULL && g->stop != NULL)
        __atomic_store_n(g->stop, 1, __ATOMIC_RELAXED);
}

void pst_io_gpu_close(struct pst_io_gpu *g)
{
    if (g == NULL)
        return;
    pst_io_gpu_stop(g);
    if (g->drive != NULL && !g->device.left_alone) /* otherwise this would wait forever */
        g->device.twin->nvme->drive_free(g->drive);
    pst_device_close(&g->device);
    g->drive = NULL;
    g->stop = NULL;
}

void pst_io_gpu_free(struct pst_io_gpu *g)
{
    if (g != NULL)
        pst_nvme_dma_free(&g->staging);
    free(g);
}

/* ---- the driving thread ----------------------------------------------------------------------------- */

bool pst_io_gpu_own(const struct pst_io_gpu *g)
{
    return g->owns;
}

static uint32_t threads_for(uint32_t n, uint32_t most)
{
    const uint32_t threads = (n + WARP - 1) / WARP * WARP;
    return threads < WARP ? WARP : threads < most ? threads : most;
}

static struct pst_k_nvme_shape shape_for(const struct pst_io_group *group)
{
    return (struct pst_k_nvme_shape){.submit_threads = threads_for(group->n, SUBMIT_THREADS)};
}

static pst_rc take_over(struct pst_io_gpu *g)
{
    char why[PST_TWIN_WHY_BYTES] = "";
    if (g->owns)
        return PST_OK;
    const pst_rc rc = g->device.twin->nvme->take_over(g->drive, why);
    g->owns = rc == PST_OK;
    return rc == PST_OK ? PST_OK : pst_fail(rc, "%s: %s", g->device.name, why);
}

pst_rc pst_io_gpu_give_back(struct pst_io_gpu *g)
{
    char why[PST_TWIN_WHY_BYTES] = "";
    if (!g->owns)
        return PST_OK;
    g->owns = false;
    g->turns++;
    if (g->device.left_alone)
        return pst_fail(PST_E_TIMEOUT,
                        "%s: the GPU kernels that read from the drives did not end in time; the GPU or a "
                        "drive may be faulty",
                        g->device.name);
    const pst_rc rc = g->device.twin->nvme->give_back(g->drive, why);
    return rc == PST_OK ? PST_OK : pst_fail(rc, "%s: %s", g->device.name, why);
}

pst_rc pst_io_gpu_submit(struct pst_io_gpu *g, struct pst_io_group *group)
{
    const struct pst_k_nvme_twin *nvme = g->device.twin->nvme;
    const struct pst_k_nvme_shape shape = shape_for(group);
    struct pst_k_nvme_table table = {
        .slot = group->slot, .slot_bytes = group->slot_bytes, .at = group->at, .n = group->n};
    struct pst_twin_n n;
    assert(g->nflying < GROUPS);
    for (uint32_t i = 0; i < g->drives->n; i++) {
        if (!pst_io_drives_iova(g->drives, i, group->slot, group->slot_bytes, &table.iova[i]))
            return pst_fail(PST_E_STATE, "a stage sent a slot in memory that the drives cannot access, "
                                         "because its region was not lent "
                                         "to the disk stage: this is a fault of Penstock or of that stage");
    }
    pst_rc rc = take_over(g);
    if (rc != PST_OK)
        return rc;
    /* the queue keeps an error, and the wait reports it */
    (void)nvme->aim_table(g->drive, group->index, &table, &n);
    (void)nvme->submit(g->drive, group->index, n, &shape);
    g->flying[g->nflying++] = group;
    return PST_OK;
}

struct pst_io_group *pst_io_gpu_ready(const struct pst_io_gpu *g, bool any)
{
    for (uint32_t i = 0; i < g->nflying; i++) {
        if (atomic_load_explicit(g->flying[i]->whole, memory_order_acquire))
            return g->flying[i];
    }
    return g->nflying > 0 && (any || g->nflying == GROUPS) ? g->flying[0] : NULL;
}

static pst_rc read_record(struct pst_io_gpu *g, struct pst_io_group *group, uint64_t sequence)
{
    const struct pst_k_nvme_record *r = &g->records[group->index];
    if (__atomic_load_n(&r->sequence, __ATOMIC_ACQUIRE) != sequence || r->left > group->n ||
        r->bad > group->n)
        return pst_fail(PST_E_STATE,
                        "%s: the GPU kernels that read from the drives ended, but did not report their "
                        "reads: this is a fault of Penstock or of the driver",
                        g->device.name);
    group->rows = r->rows;
    group->row_bytes_wanted = r->wanted;
    group->bytes = r->bytes;
    group->copied_bytes = r->copied;
    group->merged = r->merged;
    group->commands = r->n;
    group->bad = r->bad;
    group->nleft = r->left;
    g->commands += r->n;
    g->sq_doorbells = r->sq_doorbells;
    g->cq_doorbells = r->cq_doorbells;
    if (r->left == 0)
        return PST_OK;
    (void)g->device.twin->copy(g->device.q, group->left, g->device.twin->nvme->left(g->drive, group->index),
                               r->left * sizeof *group->left);
    return pst_device_wait(&g->device);
}

void pst_io_gpu_finish(struct pst_io_gpu *g, struct pst_io_group *group, struct pst_io_group **done, int *n)
{
    const char *slot = group->slot;
    const uint64_t sequence = ++g->sequence;
    uint32_t kept = 0;
    *n = 0;
    for (uint32_t i = 0; i < g->nflying; i++) {
        struct pst_io_group *each = g->flying[i];
        if (each->slot != slot) {
            g->flying[kept++] = each;
            continue;
        }
        const struct pst_k_nvme_shape shape = shape_for(each);
        (void)g->device.twin->nvme->complete(g->drive, each->index, &shape, &g->records[each->index],
                                             sequence);
        done[(*n)++] = each;
    }
    g->nflying = kept;
    pst_rc rc = pst_device_wait(&g->device);
    for (int i = 0; i < *n; i++) {
        if (rc == PST_OK)
            rc = read_record(g, done[i], sequence);
        if (rc != PST_OK)
            (void)snprintf(done[i]->why, sizeof done[i]->why, "%s", pst_error_text());
    }
}

void pst_io_gpu_count(const struct pst_io_gpu *g, struct pst_io_driven *driven)
{
    driven->gpu_commands = g->commands;
    driven->turns = g->turns > 0 ? g->turns - 1 : 0; /* the first turn was at the start */
    if (!g->owns)
        return;
    driven->sq_doorbells = g->sq_doorbells;
    driven->cq_doorbells = g->cq_doorbells;
}

const struct pst_device *pst_io_gpu_device(const struct pst_io_gpu *g)
{
    return &g->device;
}

/* engine.c: makes operations of pieces, keeps the backend busy, and handles completions, short transfers and
 * retries. */
#include "stages/lib/io/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "stages/lib/io/engine_impl.h"
#include "common/store/dataset/manifest.h"
#include "common/util/clock.h"
#include "common/error.h"

#define COMPLETIONS_MAX 64 /* completions taken from the backend at once */
#define DRAIN_MS_MAX 10000 /* a drive that takes longer will not answer */
#define REGIONS_MAX 65     /* 64 of the stage, and the staging */

/* ---- opening and closing ------------------------------------------------------------------------- */

/* Slots, and the staging memory if a drive writes to it. */
static int all_regions(const struct pst_disk *d, struct iovec regions[REGIONS_MAX])
{
    int n = 0;
    for (; n < d->config.nregions && n < REGIONS_MAX - 1; n++)
        regions[n] = d->config.regions[n];
    if (d->shared.base != NULL)
        regions[n++] = (struct iovec){d->shared.base, d->shared.bytes};
    return n;
}

static pst_rc open_backend(struct pst_disk *d, char *notes, size_t note_bytes)
{
    const struct pst_disk_config *c = &d->config;
    struct pst_io_nvme_config nvme = c->nvme;
    nvme.writable = c->writable;
    nvme.coalesce_bytes = c->coalesce_bytes;
    struct iovec regions[REGIONS_MAX];
    const int nregions = all_regions(d, regions);
    for (uint32_t i = 0; i < c->nfiles; i++)
        d->files[i].writable = c->writable || c->writable_files[i];
    const struct pst_io_config config = {.files = d->files,
                                         .nfiles = c->nfiles,
                                         .arrays = c->arrays,
                                         .depth = c->depth,
                                         .commands = d->depth.commands,
                                         .whole_groups = d->depth.automatic,
                                         .threads = c->threads,
                                         .regions = regions,
                                         .nregions = nregions,
                                         .faults = c->faults,
                                         .bus = c->bus,
                                         .nvme = &nvme};
    pst_rc rc =
        pst_io_choose(&d->backend, &config, c->backend, c->paths, c->direct, c->writable, notes, note_bytes);
    d->direct = rc == PST_OK;
    for (uint32_t i = 0; i < c->nfiles; i++)
        d->direct = d->direct && (d->files[i].fd < 0 || d->files[i].direct >= 0);
    return rc;
}

static pst_rc make_memory(struct pst_disk *d)
{
    const struct pst_disk_config *c = &d->config;
    d->tables = calloc(c->tables_max, sizeof *d->tables);
    d->ops = calloc((size_t)c->depth, sizeof *d->ops);
    /* most pages are never touched, and untouched pages take no memory */
    d->staging_bytes = pst_align_up(c->coalesce_bytes, PST_PAGE) + 2 * PST_PAGE;
    const struct pst_io_backend_ops *ops =
        strcmp(c->backend, "auto") != 0 ? pst_io_backend_named(c->backend) : NULL;
    if (ops != NULL && ops->dma) {
        pst_rc rc = pst_nvme_dma_new(&d->shared, NULL, d->staging_bytes * (size_t)c->depth);
        if (rc != PST_OK)
            return rc;
    }
    void *staging = d->shared.base != NULL
                        ? d->shared.base
                        : mmap(NULL, d->staging_bytes * (size_t)c->depth, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    d->staging = staging == MAP_FAILED ? NULL : staging;
    if (d->tables == NULL || d->ops == NULL || d->staging == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %d disk operations of %llu bytes",
                        c->depth, (unsigned long long)c->coalesce_bytes);
    for (int i = 0; i < c->depth; i++) {
        d->ops[i].io.iov = d->ops[i].iov;
        d->ops[i].staging = d->staging + (size_t)i * d->staging_bytes;
        d->ops[i].next = d->free_ops;
        d->free_ops = &d->ops[i];
        d->nfree++;
    }
    return pst_disk_pieces_new(&d->pieces, c);
}

pst_rc pst_disk_new(struct pst_disk **out, const struct pst_disk_config *config, char *note,
                    size_t note_bytes)
{
    assert((config->depth >= 1 || config->depth == PST_AUTO) && config->tables_max >= 1 &&
           config->threads >= 1 && note_bytes > 0);
    note[0] = '\0';
    *out = NULL;
    pst_rc rc = pst_disk_config_check(config);
    if (rc != PST_OK)
        return rc;
    struct pst_disk *d = calloc(1, sizeof *d);
    if (d == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the disk engine");
    d->config = *config;
    d->depth = pst_disk_depth_choose(config);
    d->config.depth = d->depth.operations;
    for (int i = 0; i < PST_REQUEST_FILES_MAX; i++)
        d->files[i].fd = d->files[i].direct = -1;
    rc = make_memory(d);
    if (rc == PST_OK)
        rc = open_backend(d, note, note_bytes);
    if (rc == PST_OK)
        rc = pst_disk_groups_new(d);
    if (rc != PST_OK) {
        pst_disk_free(d);
        return rc;
    }
    pst_disk_gap_set(d, config->gap_bytes);
    *out = d;
    return PST_OK;
}

void pst_disk_sleep(struct pst_disk *d, int64_t ms)
{
    (void)!pst_io_wait(&d->backend, (int)pst_max_i64(1, ms)); /* an error comes again at the next ring */
}

/* True: nothing is in flight. Only then may the memory be freed. */
static bool drain(struct pst_disk *d)
{
    int64_t deadline = pst_clock_ms() + DRAIN_MS_MAX;
    pst_disk_groups_hurry(d);
    while (d->in_flight > 0 && pst_clock_ms() < deadline) {
        struct pst_io_op *done[COMPLETIONS_MAX];
        int n = d->backend.ops->poll(&d->backend, done, COMPLETIONS_MAX);
        bool any = n > 0;
        d->in_flight -= n;
        (void)!pst_disk_groups_take(d, &any); /* errors do not matter any more */
        if (!any)
            pst_disk_sleep(d, deadline - pst_clock_ms());
    }
    return d->in_flight == 0;
}

void pst_disk_free(struct pst_disk *d)
{
    if (d == NULL)
        return;
    const char *shared = d->shared.base;
    if (d->backend.ops == NULL || drain(d)) {
        if (d->backend.ops != NULL)
            d->backend.ops->close(&d->backend);
        pst_io_files_close(d->files, d->config.nfiles);
        pst_nvme_dma_free(&d->shared);
        if (d->staging != NULL && d->staging != shared)
            (void)munmap(d->staging, d->staging_bytes * (size_t)d->config.depth);
        free(d->ops);
        pst_disk_groups_delete(&d->groups);
    } /* otherwise the drive may still write to this memory, so it stays allocated */
    pst_disk_pieces_delete(&d->pieces);
    free(d->tables);
    free(d);
}

const char *pst_disk_backend(const struct pst_disk *d)
{
    return d->backend.ops->name;
}

bool pst_disk_direct(const struct pst_disk *d)
{
    return d->direct;
}

const struct pst_disk_stats *pst_disk_stats(const struct pst_disk *d)
{
    return &d->stats;
}

int pst_disk_in_flight(const struct pst_disk *d)
{
    return d->in_flight;
}

int pst_disk_fds(const struct pst_disk *d, int fds[PST_IO_FDS_MAX])
{
    return d->backend.ops->fds(&d->backend, fds);
}

void pst_disk_whole(struct pst_disk *d, struct pst_disk_ticket *ticket)
{
    atomic_store_explicit(&ticket->whole, true, memory_order_release);
    d->posted += d->backend.groups > 0; /* so that the backend is rung */
}

pst_rc pst_disk_add(struct pst_disk *d, struct pst_disk_ticket *ticket, void *slot, uint64_t slot_bytes,
                    uint64_t table_at, uint64_t count)
{
    if (count == 0)
        return PST_OK;
    if (table_at % _Alignof(struct pst_request) != 0 || table_at > slot_bytes ||
        count > (slot_bytes - table_at) / sizeof(struct pst_request))
        return pst_fail(
            PST_E_FORMAT, "a table of %llu disk requests at byte %llu does not fit its slot of %llu bytes",
            (unsigned long long)count, (unsigned long long)table_at, (unsigned long long)slot_bytes);
    if (d->ntables == d->config.tables_max)
        return pst_fail(PST_E_LIMIT,
                        "the disk stage got more than %u tables of requests that it has not served yet, "
                        "which is the limit: use fewer slots or instances",
                        d->ntables);
    d->tables[(d->head + d->ntables++) % d->config.tables_max] = (struct pst_disk_table){
        .ticket = ticket, .slot = slot, .slot_bytes = slot_bytes, .at = table_at, .count = count};
    ticket->tables++;
    return PST_OK;
}

/* ---- making operations --------------------------------------------------------------------------- */

/* Whether the device can move this piece directly between file and slot. */
static bool fits_device(const struct pst_disk *d, const struct pst_disk_piece *piece)
{
    const struct pst_io_file *file = &d->files[piece->file];
    return file->direct < 0 || (piece->at % file->block == 0 && piece->bytes % file->block == 0 &&
                                (uintptr_t)piece->memory % file->mem_align == 0);
}

static uint64_t round_down(uint64_t value, uint64_t to)
{
    return value - value % to;
}

/* Appends memory to the transfer, without its first *skip bytes. */
static void add_span(struct op *op, char *memory, uint64_t bytes, uint64_t *skip)
{
    struct pst_io_op *io = &op->io;
    if (*skip >= bytes) {
        *skip -= bytes;
        return;
    }
    memory += *skip;
    bytes -= *skip;
    *skip = 0;
    struct iovec *last = io->niov > 0 ? &op->iov[io->niov - 1] : NULL;
    if (last != NULL && (char *)last->iov_base + last->iov_len == memory)
        last->iov_len += bytes;
    else
        op->iov[io->niov++] = (struct iovec){memory, bytes};
    io->bytes += bytes;
}

/* Aims the transfer at the part of the window that is still missing. */
static void aim(struct pst_disk *d, struct op *op)
{
    struct pst_io_op *io = &op->io;
    io->at = op->begin + op->done;
    io->niov = 0;
    io->bytes = 0;
    if (op->staged) {
        uint64_t end = pst_align_up(op->end, d->files[io->file].block);
        op->iov[0] = (struct iovec){op->staging + op->done, end - io->at};
        io->niov = 1;
        io->bytes = end - io->at;
        return;
    }
    uint64_t skip = op->done, at = op->begin;
    for (uint32_t i = op->first; i < op->first + op->window; i++) {
        const struct pst_disk_piece *piece = &op->piece[i];
        add_span(op, op->staging, piece->at - at, &skip);
        add_span(op, piece->memory, piece->bytes, &skip);
        at = piece->at + piece->bytes;
    }
}

static void open_window(struct pst_disk *d, struct op *op, uint32_t window)
{
    const struct pst_io_file *file = &d->files[op->io.file];
    const struct pst_disk_piece *first = &op->piece[op->first];
    op->window = window;
    op->tries = 0;
    op->done = 0;
    op->begin = op->staged ? round_down(first->at, file->block) : first->at;
    op->end = 0;
    for (uint32_t i = op->first; i < op->first + window; i++) {
        uint64_t end = op->piece[i].at + op->piece[i].bytes;
        op->end = end > op->end ? end : op->end;
    }
    aim(d, op);
}

static void post(struct pst_disk *d, struct op *op)
{
    d->stats.requests++;
    d->backend.ops->post(&d->backend, &op->io);
    d->posted++;
}

/* Whether the operation can have this piece, too, after the pieces that it has. */
static bool joins(const struct pst_disk *d, const struct op *op, uint64_t begin, uint64_t end,
                  const struct pst_disk_piece *piece)
{
    const struct pst_disk_piece *first = &op->piece[0];
    if (op->npieces == OP_PIECES_MAX || piece->file != first->file || piece->write != first->write)
        return false;
    const uint64_t block = d->files[piece->file].block;
    const uint64_t gap = piece->write ? 0 : d->gap_bytes;
    if (op->staged)
        return !fits_device(d, piece) && round_down(piece->at, block) <= pst_align_up(end, block) + gap &&
               pst_align_up(piece->at + piece->bytes, block) - begin <= d->staging_bytes;
    return piece->at >= end && piece->at - end <= gap &&
           piece->at + piece->bytes - begin <= d->pieces.piece_bytes &&
           (op->io.direct ? fits_device(d, piece)
                          : d->files[piece->file].direct < 0 || !fits_device(d, piece));
}

/* Makes the next operation of the sorted pieces. */
static void make_op(struct pst_disk *d, struct op *op, struct pst_disk_ticket *ticket)
{
    const struct pst_disk_pieces *p = &d->pieces;
    const struct pst_disk_piece *piece = &p->piece[p->key[d->next_piece++].piece];
    const struct pst_io_file *file = &d->files[piece->file];
    bool fits = fits_device(d, piece);
    op->ticket = ticket;
    op->io.file = piece->file;
    op->io.write = piece->write;
    op->io.direct = fits && file->direct >= 0;
    op->staged = !fits && !piece->write;
    if (op->staged)
        op->io.direct = true;
    op->piece[0] = *piece;
    op->npieces = 1;
    op->first = 0;
    uint64_t begin = op->staged ? round_down(piece->at, file->block) : piece->at;
    uint64_t end = piece->at + piece->bytes;
    while (d->next_piece < p->n) {
        const struct pst_disk_piece *next = &p->piece[p->key[d->next_piece].piece];
        if (!joins(d, op, begin, end, next))
            break;
        op->piece[op->npieces++] = *next;
        uint64_t next_end = next->at + next->bytes;
        end = next_end > end ? next_end : end;
        d->next_piece++;
    }
    d->stats.merged += op->npieces - 1;
    ticket->ops++;
    open_window(d, op, op->npieces);
}

/* The table whose requests become operations now; NULL: none. */
static struct pst_disk_table *table_at_hand(struct pst_disk *d)
{
    if (d->backend.groups > 0)
        return d->groups.handed != NULL ? &d->groups.handed->of : NULL;
    return d->ntables > 0 ? &d->tables[d->head] : NULL;
}

void pst_disk_drop_table(struct pst_disk *d)
{
    d->tables[d->head].ticket->tables--;
    d->head = (d->head + 1) % d->config.tables_max;
    d->ntables--;
}

/* For our own driver, operations go in waves, so that a doorbell brings many commands: the next wave begins
 * when half of the last one has ended. Other backends get an operation as soon as there is room for it. */
static bool may_post(struct pst_disk *d)
{
    if (d->backend.ops->dma && d->nfree < d->config.depth - d->config.depth / 2 && !d->in_wave)
        return false;
    d->in_wave = d->nfree > 0;
    return d->in_wave;
}

/* Makes and posts operations until the queue is full. */
static pst_rc fill_queue(struct pst_disk *d)
{
    struct pst_disk_table *table;
    pst_disk_groups_post(d);
    d->in_wave = false;
    while ((table = table_at_hand(d)) != NULL && may_post(d)) {
        if (d->next_piece == d->pieces.n) {
            d->next_piece = 0;
            pst_rc rc = pst_disk_pieces_take(&d->pieces, table, &d->stats);
            if (rc != PST_OK) {
                d->pieces.n = 0;
                return rc;
            }
        }
        struct pst_disk_ticket *ticket = table->ticket;
        while (d->free_ops != NULL && d->next_piece < d->pieces.n) {
            struct op *op = d->free_ops;
            d->free_ops = op->next;
            d->nfree--;
            make_op(d, op, ticket);
            post(d, op);
            d->in_flight++;
        }
        if (d->next_piece < d->pieces.n || table->next < table->count)
            continue;
        if (d->backend.groups > 0)
            pst_disk_groups_done(d);
        else
            pst_disk_drop_table(d);
    }
    return PST_OK;
}

/* ---- completions --------------------------------------------------------------------------------- */

/* Describes what a piece is for. The tag of a feature request is a vertex. */
static const char *subject(const struct pst_disk *d, const struct pst_disk_piece *piece, char out[96])
{
    const struct pst_request_array *a = pst_io_array_in(d->config.arrays, piece->file);
    const ptrdiff_t id = a - d->config.arrays;
    if (id == PST_ARRAY_FEATURES || id > PST_REQUEST_OF_TYPE(d->config.types))
        (void)snprintf(out, 96, "the features of vertex %llu", (unsigned long long)piece->tag);
    else
        (void)snprintf(out, 96, "%s for request %llu", d->config.names[id], (unsigned long long)piece->tag);
    return out;
}

static pst_rc give_up(const struct pst_disk *d, const struct op *op, const char *what)
{
    const struct pst_disk_piece *piece = &op->piece[op->first];
    const struct pst_io_file *file = &d->files[piece->file];
    const uint64_t block = file->block > 1 ? file->block : PST_SECTOR;
    char of[96];
    return pst_fail(PST_E_IO,
                    "%s %s failed after %d tries: %s: %s, bytes %llu to %llu (block %llu of %llu bytes): "
                    "dmesg may show the drive's errors, and `penstock verify` checks the whole dataset",
                    op->io.write ? "writing" : "reading", subject(d, piece, of), op->tries, what, file->path,
                    (unsigned long long)piece->at, (unsigned long long)(piece->at + piece->bytes),
                    (unsigned long long)(piece->at / block), (unsigned long long)block);
}

/* Tries again. When the tries of a window of several pieces are used up, goes on piece by piece. */
static pst_rc try_again(struct pst_disk *d, struct op *op, const char *what)
{
    op->tries++;
    if (op->tries > d->config.retries) {
        if (op->window == 1)
            return give_up(d, op, what);
        open_window(d, op, 1);
    }
    d->stats.retries++;
    post(d, op);
    return PST_OK;
}

static void finish(struct pst_disk *d, struct op *op)
{
    op->ticket->ops--;
    op->next = d->free_ops;
    d->free_ops = op;
    d->nfree++;
    d->in_flight--;
}

static void window_done(struct pst_disk *d, struct op *op)
{
    for (uint32_t i = op->first; i < op->first + op->window; i++) {
        const struct pst_disk_piece *piece = &op->piece[i];
        if (op->staged)
            memcpy(piece->memory, op->staging + (piece->at - op->begin), piece->bytes);
        if (op->staged || d->backend.ops->copies || !op->io.direct)
            d->stats.copied_bytes += piece->bytes;
    }
    op->first += op->window;
    if (op->first == op->npieces) {
        finish(d, op);
        return;
    }
    open_window(d, op, 1);
    post(d, op);
}

static bool at_end_of_file(const struct pst_disk *d, const struct op *op, uint64_t at)
{
    struct stat st;
    return !op->io.write && fstat(d->files[op->io.file].fd, &st) == 0 && S_ISREG(st.st_mode) &&
           at >= (uint64_t)st.st_size;
}

static pst_rc complete(struct pst_disk *d, struct op *op)
{
    int64_t result = op->io.result;
    if (result < 0) {
        char why[128];
        const char *errno_says = strerror_r((int)-result, why, sizeof why);
        return try_again(d, op, op->io.why[0] != '\0' ? op->io.why : errno_says);
    }
    d->stats.bytes += (uint64_t)result;
    uint64_t reached = op->begin + op->done + (uint64_t)result;
    if (reached >= op->end) {
        window_done(d, op);
        return PST_OK;
    }
    if (at_end_of_file(d, op, reached)) {
        op->tries++;
        return give_up(d, op, "the file ends before its last row");
    }
    /* a short transfer: go on from the last whole block */
    uint64_t before = op->done;
    op->done = round_down(op->done + (uint64_t)result, op->io.direct ? d->files[op->io.file].block : 1);
    aim(d, op);
    if (op->done == before)
        return try_again(d, op, "no bytes were transferred");
    post(d, op);
    return PST_OK;
}

static pst_rc take_completions(struct pst_disk *d, bool *any)
{
    struct pst_io_op *done[COMPLETIONS_MAX];
    int n = d->backend.ops->poll(&d->backend, done, COMPLETIONS_MAX);
    *any = n > 0;
    pst_rc first = pst_disk_groups_take(d, any);
    for (int i = 0; i < n; i++) {
        struct op *op = (struct op *)(void *)done[i];
        if (first != PST_OK) {
            finish(d, op);
            continue;
        }
        first = complete(d, op);
        if (first != PST_OK)
            finish(d, op);
    }
    return first;
}

/* Adds the time since the last call, with what is in flight now. */
static void account(struct pst_disk *d)
{
    const double now = pst_clock_s(), passed = d->looked_at > 0 ? now - d->looked_at : 0;
    d->looked_at = now;
    d->stats.in_flight_s += passed * d->in_flight;
    if (d->in_flight > 0)
        d->stats.active_s += passed;
    if (d->in_flight > 0 && d->in_flight < d->config.depth && d->ntables == 0)
        d->stats.starved_s += passed;
}

static pst_rc pump(struct pst_disk *d)
{
    account(d);
    bool any = true;
    while (any) {
        pst_rc rc = fill_queue(d);
        if (d->posted > 0) {
            d->posted = 0;
            pst_rc rung = d->backend.ops->ring(&d->backend);
            rc = rc == PST_OK ? rung : rc;
        }
        account(d); /* else a burst that begins and ends in this call would have taken no time */
        if (rc == PST_OK)
            rc = take_completions(d, &any);
        if (rc != PST_OK)
            return rc;
        d->in_wave = false;
        any = any || d->posted > 0 || (table_at_hand(d) != NULL && may_post(d));
    }
    return PST_OK;
}

pst_rc pst_disk_pump(struct pst_disk *d)
{
    if (d->failed != PST_OK)
        return pst_fail(d->failed, "%s", d->failure);
    pst_rc rc = pump(d);
    if (rc != PST_OK) {
        d->failed = rc;
        (void)snprintf(d->failure, sizeof d->failure, "%s", pst_error_text());
        /* operations posted meanwhile must reach the backend; otherwise draining would wait for them forever
         */
        if (d->posted > 0 && d->backend.ops->ring(&d->backend) == PST_OK)
            d->posted = 0;
        return pst_fail(rc, "%s", d->failure);
    }
    return PST_OK;
}

pst_rc pst_disk_wait(struct pst_disk *d, int timeout_ms)
{
    int64_t deadline = pst_clock_ms() + timeout_ms;
    for (;;) {
        pst_rc rc = pst_disk_pump(d);
        if (rc != PST_OK || (d->in_flight == 0 && d->ntables == 0))
            return rc;
        int64_t left = deadline - pst_clock_ms();
        if (left <= 0)
            return pst_fail(PST_E_TIMEOUT, "%d disk operations did not end within %d ms: dmesg may say why",
                            d->in_flight, timeout_ms);
        pst_disk_sleep(d, left);
    }
}

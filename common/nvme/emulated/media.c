/* media.c: the content of namespaces. RAM, and functions of the address, are copied straight to or from the
 * client's memory when a command is due. Files go through a buffer and io_uring. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/nvme/emulated/emulated_impl.h"

struct transfer {
    struct pst_emu_part *part;
    struct pst_emu_command *command;
    const struct pst_emu_namespace_config *ns;
    uint32_t nsid;
    uint64_t at; /* byte of the namespace */
};

static uint64_t bytes_of(const struct pst_emu_config *c, const struct pst_nvme_sqe *sqe)
{
    return ((sqe->cdw12 & 0xffff) + 1ull) * c->lba_bytes;
}

/* Checks what can be checked before any byte moves. */
static bool check(struct pst_emu_part *part, struct pst_emu_command *command, struct transfer *t,
                  uint64_t *bytes)
{
    const struct pst_emu_config *c = &part->ssd->emu->config;
    const struct pst_nvme_sqe *sqe = &command->sqe;
    command->status = PST_NVME_OK;
    *bytes = bytes_of(c, sqe);
    const uint64_t lba = sqe->cdw10 | (uint64_t)sqe->cdw11 << 32;
    if (sqe->nsid < 1 || sqe->nsid > c->nnamespaces) {
        command->status = PST_NVME_BAD_NAMESPACE;
        return false;
    }
    const struct pst_emu_namespace_config *ns = &c->namespaces[sqe->nsid - 1];
    const uint64_t blocks = ns->bytes / c->lba_bytes;
    if (c->transfer_bytes > 0 && *bytes > c->transfer_bytes)
        command->status = PST_NVME_BAD_FIELD;
    else if (lba >= blocks || *bytes / c->lba_bytes > blocks - lba)
        command->status = PST_NVME_LBA_RANGE;
    else if (sqe->opcode == PST_NVME_WRITE && ns->kind != PST_EMU_RAM && !ns->writable)
        command->status = PST_NVME_NS_READ_ONLY;
    *t = (struct transfer){part, command, ns, sqe->nsid, lba * c->lba_bytes};
    return command->status == PST_NVME_OK;
}

/* ---- files ---------------------------------------------------------------------------------------- */

void pst_emu_media_reap(struct pst_emu_part *part, bool wait)
{
    struct io_uring_cqe *cqe;
    if (part->io_posted > 0) {
        (void)io_uring_submit(&part->ring);
        part->io_posted = 0;
    }
    while (part->io_in_flight > 0) {
        const int rc = wait ? io_uring_wait_cqe(&part->ring, &cqe) : io_uring_peek_cqe(&part->ring, &cqe);
        if (rc == -EINTR)
            continue;
        if (rc != 0)
            return;
        struct pst_emu_command *command = io_uring_cqe_get_data(cqe);
        command->io_failed = command->io_failed || cqe->res < 0;
        command->io_pending--;
        part->io_in_flight--;
        io_uring_cqe_seen(&part->ring, cqe);
    }
}

/* The byte of the file for a byte of the namespace, and how many bytes follow it there. */
static uint64_t place(const struct transfer *t, uint64_t at, uint64_t *run)
{
    const struct pst_emu_namespace_config *ns = t->ns;
    if (ns->unit == 0)
        return ns->at + at;
    const uint64_t unit = at / ns->unit * t->part->ssd->emu->config.ssds + t->part->ssd->number;
    const uint64_t left = ns->unit - at % ns->unit;
    *run = *run < left ? *run : left;
    return ns->at + unit * ns->unit + at % ns->unit;
}

static void post_file(struct transfer *t, uint64_t bytes)
{
    struct pst_emu_part *part = t->part;
    const int fd = t->ns->fd[t->ns->own_files ? part->ssd->number : 0];
    struct pst_emu_command *command = t->command;
    for (uint64_t done = 0, run; done < bytes; done += run) {
        run = bytes - done;
        const uint64_t in_file = place(t, t->at + done, &run);
        if (part->io_in_flight == PST_EMU_FILE_IO_MAX)
            pst_emu_media_reap(part, true);
        struct io_uring_sqe *sqe = io_uring_get_sqe(&part->ring);
        assert(sqe != NULL); /* the ring has room for all operations in flight */
        if (command->sqe.opcode == PST_NVME_WRITE)
            io_uring_prep_write(sqe, fd, command->buffer + done, (unsigned)run, in_file);
        else
            io_uring_prep_read(sqe, fd, command->buffer + done, (unsigned)run, in_file);
        io_uring_sqe_set_data(sqe, command);
        part->io_in_flight++;
        part->io_posted++;
        command->io_pending++;
    }
}

static bool collect(void *context, uint8_t *memory, uint64_t at, uint64_t bytes)
{
    pst_emu_copy(((struct transfer *)context)->command->buffer + at, memory, bytes);
    return true;
}

void pst_emu_media_begin(struct pst_emu_part *part, struct pst_emu_command *command)
{
    struct transfer t;
    uint64_t bytes;
    if (!check(part, command, &t, &bytes) || t.ns->kind != PST_EMU_FILE)
        return;
    /* beyond its end a file reads as zeroes */
    command->buffer = command->sqe.opcode == PST_NVME_WRITE ? malloc(bytes) : calloc(1, bytes);
    command->io_failed = false;
    if (command->buffer == NULL) {
        command->status = PST_NVME_INTERNAL;
        return;
    }
    part->buffered += bytes;
    if (command->sqe.opcode == PST_NVME_WRITE && !pst_emu_walk(part, command, bytes, collect, &t))
        return;
    if (command->torn)
        bytes = bytes / 2 / part->ssd->emu->config.lba_bytes * part->ssd->emu->config.lba_bytes;
    if (!command->fault || command->sqe.opcode == PST_NVME_READ)
        post_file(&t, bytes);
}

/* ---- what is due ---------------------------------------------------------------------------------- */

static void generate(const struct transfer *t, uint8_t *memory, uint64_t at, uint64_t bytes)
{
    const uint32_t ssd = t->part->ssd->number;
    for (uint64_t i = 0, n; i < bytes; i += n) { /* a page may end within a word */
        const uint64_t skip = (at + i) % 8, word = pst_nvme_emulated_pattern(ssd, t->nsid, at + i - skip);
        n = bytes - i < 8 - skip ? bytes - i : 8 - skip;
        pst_emu_copy(memory + i, (const uint8_t *)&word + skip, n);
    }
}

static bool move(void *context, uint8_t *memory, uint64_t at, uint64_t bytes)
{
    struct transfer *t = context;
    const struct pst_emu_command *command = t->command;
    uint8_t *ram = t->ns->kind == PST_EMU_RAM ? t->part->ssd->ram[t->nsid - 1] + t->at + at : NULL;
    if (command->sqe.opcode == PST_NVME_WRITE && ram != NULL)
        pst_emu_copy(ram, memory, bytes);
    else if (ram != NULL)
        pst_emu_copy(memory, ram, bytes);
    else if (t->ns->kind == PST_EMU_FILE)
        pst_emu_copy(memory, command->buffer + at, bytes);
    else
        generate(t, memory, t->at + at, bytes);
    return true;
}

/* Puts rubbish into memory for a read that fails, so that a client that ignores the status is noticed. */
static bool spoil(void *context, uint8_t *memory, uint64_t at, uint64_t bytes)
{
    (void)context, (void)at;
    const uint64_t rubbish = 0xeeeeeeeeeeeeeeee;
    for (uint64_t i = 0; i < bytes; i += sizeof rubbish)
        pst_emu_copy(memory + i, &rubbish, bytes - i < sizeof rubbish ? bytes - i : sizeof rubbish);
    return true;
}

static void release_buffer(struct pst_emu_part *part, struct pst_emu_command *command, uint64_t bytes)
{
    if (command->buffer != NULL)
        part->buffered -= bytes;
    free(command->buffer);
    command->buffer = NULL;
}

void pst_emu_media_move(struct pst_emu_part *part, struct pst_emu_command *command)
{
    struct pst_nvme_emulated_stats *stats = part->ssd->stats;
    const bool writes = command->sqe.opcode == PST_NVME_WRITE;
    struct transfer t;
    uint64_t bytes;
    if (!check(part, command, &t, &bytes))
        goto out;
    if (command->torn || command->fault) {
        __atomic_fetch_add(command->torn ? &stats->torn : &stats->errors, 1, __ATOMIC_RELAXED);
        if (command->torn && t.ns->kind == PST_EMU_RAM)
            (void)pst_emu_walk(
                part, command,
                bytes / 2 / part->ssd->emu->config.lba_bytes * part->ssd->emu->config.lba_bytes, move, &t);
        else if (!writes)
            (void)pst_emu_walk(part, command, bytes, spoil, &t);
        command->status = writes ? PST_NVME_WRITE_FAULT : PST_NVME_READ_ERROR;
        goto out;
    }
    if (t.ns->kind == PST_EMU_FILE && (command->buffer == NULL || command->io_failed))
        command->status = writes ? PST_NVME_WRITE_FAULT : PST_NVME_READ_ERROR;
    else if (t.ns->kind == PST_EMU_FILE && writes)
        ; /* the data are in the file */
    else if (!pst_emu_walk(part, command, bytes, move, &t))
        goto out;
    if (command->status == PST_NVME_OK)
        __atomic_fetch_add(writes ? &stats->bytes_written : &stats->bytes_read, bytes, __ATOMIC_RELAXED);
out:
    release_buffer(part, command, bytes_of(&part->ssd->emu->config, &command->sqe));
}

/* bench_file.c: moves the bench's requests through the disk engine's backends for files. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/nvme/emulated/emulated.h"
#include "common/util/clock.h"
#include "common/util/file.h"
#include "stages/lib/io/backend.h"
#include "tools/penstock/machine/bench_impl.h"

#define CHUNK (1u << 20)
#define THREADS 16 /* for pread */
#define WAIT_MS 1000

struct file_op {
    struct pst_io_op io; /* first: the backend returns a pointer to it */
    struct iovec iov;
    uint64_t begun_ns;
};

struct files {
    struct pst_io_file file;
    struct pst_io_backend backend;
    struct file_op *ops; /* one for each slot */
};

static pst_rc fill(int fd, uint64_t bytes)
{
    uint64_t *chunk = malloc(CHUNK);
    pst_rc rc = chunk != NULL ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot fill the file");
    if (rc == PST_OK && posix_fallocate(fd, 0, (off_t)bytes) != 0)
        rc = pst_fail(PST_E_IO, "the file system does not have %llu bytes free", (unsigned long long)bytes);
    for (uint64_t at = 0; at < bytes && rc == PST_OK; at += CHUNK) {
        const uint64_t n = bytes - at < CHUNK ? bytes - at : CHUNK;
        for (uint64_t i = 0; i < n; i += 8)
            chunk[i / 8] = pst_nvme_emulated_pattern(0, 1, at + i);
        if (pwrite(fd, chunk, n, (off_t)at) != (ssize_t)n)
            rc = pst_fail_errno("cannot write the benchmark's file");
    }
    free(chunk);
    return rc == PST_OK && fsync(fd) != 0 ? pst_fail_errno("cannot sync the benchmark's file to disk") : rc;
}

/* Writes the file under another name and renames it, so that a file of this name is whole. The first check
 * shows whether its content is ours. */
static pst_rc make_file(const char *path, uint64_t bytes)
{
    struct stat st;
    struct pst_file_new f;
    if (stat(path, &st) == 0)
        return (uint64_t)st.st_size >= bytes
                   ? PST_OK
                   : pst_fail(PST_E_ARG,
                              "%s has %lld bytes, but --span requires at least %llu: use a longer file or a "
                              "smaller --span",
                              path, (long long)st.st_size, (unsigned long long)bytes);
    pst_rc rc = pst_file_new_begin(&f, path);
    if (rc == PST_OK)
        rc = fill(f.fd, bytes);
    if (rc == PST_OK)
        return pst_file_new_commit(&f);
    pst_file_new_abandon(&f);
    return rc;
}

static pst_rc file_open(struct pst_mover *m)
{
    const struct pst_bench_io *o = m->o;
    struct files *f = calloc(1, sizeof *f);
    if (f == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the state of the benchmark");
    m->impl = f;
    f->file.fd = f->file.direct = -1;
    f->ops = calloc(m->slots, sizeof *f->ops);
    if (f->ops == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %u operations", m->slots);
    pst_rc rc = m == m->first ? make_file(o->path, o->span) : PST_OK;
    if (rc != PST_OK)
        return rc;
    const struct iovec region = {m->memory.base, m->memory.bytes};
    const struct pst_io_config config = {.files = &f->file,
                                         .nfiles = 1,
                                         .depth = (int)o->depth,
                                         .threads = THREADS,
                                         .regions = &region,
                                         .nregions = 1,
                                         .faults = {.bad_file = -1}};
    char notes[PST_IO_NOTE_BYTES * 2] = "";
    rc = pst_io_choose(&f->backend, &config, o->backend->name, &o->path, true, o->write, notes, sizeof notes);
    if (rc == PST_OK && notes[0] != '\0' && m == m->first)
        fprintf(stderr, "note: %s\n", notes);
    if (rc == PST_OK && f->file.direct >= 0 && o->bytes % f->file.block != 0)
        return pst_fail(PST_E_ARG,
                        "--bytes is %llu; expected a multiple of %u, the block size of the file system",
                        (unsigned long long)o->bytes, f->file.block);
    return rc;
}

static pst_rc file_post(struct pst_mover *m, uint32_t slot, uint32_t ssd, uint64_t at, bool write)
{
    struct files *f = m->impl;
    struct file_op *op = &f->ops[slot];
    (void)ssd;
    *op = (struct file_op){.iov = {pst_bench_slot(m, slot), m->o->bytes}, .begun_ns = pst_clock_ns()};
    op->io = (struct pst_io_op){.write = write,
                                .direct = f->file.direct >= 0,
                                .at = at,
                                .iov = &op->iov,
                                .niov = 1,
                                .bytes = m->o->bytes};
    f->backend.ops->post(&f->backend, &op->io);
    return PST_OK;
}

/* Does nothing, because waiting rings, too: one system call for both. */
static pst_rc file_ring(struct pst_mover *m)
{
    (void)m;
    return PST_OK;
}

static pst_rc file_poll(struct pst_mover *m, struct pst_bench_done *done, uint32_t max, uint32_t *n)
{
    struct files *f = m->impl;
    struct pst_io_op *ended[256];
    const int most = max < 256 ? (int)max : 256;
    *n = (uint32_t)f->backend.ops->poll(&f->backend, ended, most);
    pst_rc rc = *n == 0 ? pst_io_wait(&f->backend, WAIT_MS) : PST_OK;
    if (rc != PST_OK)
        return rc;
    if (*n == 0)
        *n = (uint32_t)f->backend.ops->poll(&f->backend, ended, most);
    const uint64_t now = pst_clock_ns();
    for (uint32_t i = 0; i < *n; i++) {
        const struct file_op *op = (const struct file_op *)(const void *)ended[i];
        if (op->io.result != (int64_t)m->o->bytes)
            return pst_fail(PST_E_IO, "%s, byte %llu: %s", m->o->path, (unsigned long long)op->io.at,
                            op->io.result < 0 ? strerror((int)-op->io.result)
                                              : "fewer bytes were returned than requested");
        done[i] = (struct pst_bench_done){(uint32_t)(op - f->ops), now - op->begun_ns};
    }
    return PST_OK;
}

static const uint8_t *file_reference(const struct pst_mover *m, uint32_t ssd)
{
    (void)m, (void)ssd;
    return NULL;
}

static void file_report(struct pst_mover *m, struct pst_bench_io_result *result)
{
    (void)m, (void)result;
}

static void file_close(struct pst_mover *m)
{
    struct files *f = m->impl;
    if (f == NULL)
        return;
    if (f->backend.ops != NULL)
        f->backend.ops->close(&f->backend);
    pst_io_files_close(&f->file, 1);
    free(f->ops);
    free(f);
}

const struct pst_mover pst_mover_file = {.sleeps = true,
                                         .open = file_open,
                                         .post = file_post,
                                         .ring = file_ring,
                                         .poll = file_poll,
                                         .reference = file_reference,
                                         .report = file_report,
                                         .close = file_close};

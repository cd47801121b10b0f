/* choose.c: chooses a backend and opens the files for it. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "kernels/twin.h"
#include "stages/lib/io/backend.h"
#include "common/error.h"

static void add_note(char *notes, size_t bytes, const char *note)
{
    size_t n = strlen(notes);
    if (note[0] != '\0')
        (void)snprintf(notes + n, bytes - n, "%s%s", n ? "\n" : "", note);
}

pst_rc pst_io_wait(struct pst_io_backend *b, int ms)
{
    if (b->ops->wait != NULL)
        return b->ops->wait(b, ms);
    int fds[PST_IO_FDS_MAX];
    struct pollfd watched[PST_IO_FDS_MAX];
    const int n = b->ops->fds(b, fds);
    pst_rc rc = b->ops->ring(b);
    for (int i = 0; i < n; i++)
        watched[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    if (rc == PST_OK)
        (void)poll(watched, (nfds_t)n, ms);
    return rc;
}

void pst_io_files_close(struct pst_io_file *files, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        pst_io_file_close(&files[i]);
}

struct choice {
    const struct pst_io_config *config;
    const char *const *paths;
    bool direct, writable;
    char *notes;
    size_t note_bytes;
};

static pst_rc open_files(const struct choice *c, bool direct)
{
    for (uint32_t i = 0; i < c->config->nfiles; i++) {
        if (c->paths[i] == NULL || c->paths[i][0] == '\0')
            continue;
        char note[PST_IO_NOTE_BYTES];
        struct pst_io_file *file = &c->config->files[i];
        pst_rc rc = pst_io_file_open(file, c->paths[i], direct, c->writable || file->writable, note);
        if (rc != PST_OK)
            return rc;
        add_note(c->notes, c->note_bytes, note);
    }
    return PST_OK;
}

/* On a GPU, a command's timeout must end before the wait for the GPU's queue does; that wait covers other
 * reads, too. */
static pst_rc suits_gpu(const struct pst_io_nvme_config *nvme, bool faulty)
{
    const double most_ms = 1000 * pst_queue_wait_s() / 2;
    if (faulty)
        return pst_fail(
            PST_E_ARG,
            "fault_rate, fault_short_rate, fault_delay_us and fault_row work only if the disk stage is on a "
            "CPU; on %s, use the faults of emulated drives (\"emulated\": {\"faults\": ...})",
            nvme->gpu);
    if (nvme->timeout_ms <= most_ms)
        return PST_OK;
    return pst_fail(PST_E_ARG,
                    "timeout_ms is %u, but on %s it can be at most half of the longest wait for a GPU "
                    "(PENSTOCK_GPU_WAIT_S, %g s): expected at most %.0f",
                    nvme->timeout_ms, nvme->gpu, pst_queue_wait_s(), most_ms);
}

static pst_rc try_backend(struct pst_io_backend *b, const struct choice *c,
                          const struct pst_io_backend_ops *ops)
{
    char note[PST_IO_NOTE_BYTES] = "";
    const struct pst_io_faults *f = &c->config->faults;
    const bool faulty = f->error_rate > 0 || f->short_rate > 0 || f->delay_us > 0 || f->bad_file >= 0;
    pst_rc rc = PST_OK;
    if (c->config->nvme != NULL && c->config->nvme->gpu != NULL)
        rc = suits_gpu(c->config->nvme, faulty);
    /* a backend with its own drives reads no files, and has the drives' alignment */
    if (rc == PST_OK)
        rc = open_files(c, c->direct && ops->direct && !ops->dma);
    if (rc == PST_OK) {
        *b = (struct pst_io_backend){.ops = ops};
        rc = ops->open(b, c->config, note);
    }
    if (rc != PST_OK) {
        b->ops = NULL;
        pst_io_files_close(c->config->files, c->config->nfiles);
        return rc;
    }
    add_note(c->notes, c->note_bytes, note);
    const bool has_bus = c->config->bus.book != NULL && !ops->dma;
    return faulty || has_bus ? pst_io_faulty_wrap(b, c->config) : PST_OK;
}

const struct pst_io_backend_ops *pst_io_backend_named(const char *name)
{
    static const struct pst_io_backend_ops *const all[] = {
        &pst_io_uring_ops, &pst_io_pread_ops, &pst_io_mmap_ops, &pst_io_nvme_ops, &pst_io_emulated_ops};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(name, all[i]->name) == 0)
            return all[i];
    }
    (void)pst_fail(PST_E_ARG, "unknown disk backend \"%s\"; expected auto|" PST_IO_BACKEND_NAMES, name);
    return NULL;
}

pst_rc pst_io_choose(struct pst_io_backend *b, const struct pst_io_config *config, const char *want,
                     const char *const *paths, bool direct, bool writable, char *notes, size_t note_bytes)
{
    const struct choice c = {config, paths, direct, writable, notes, note_bytes};
    if (strcmp(want, "auto") == 0) {
        pst_rc rc = try_backend(b, &c, &pst_io_uring_ops);
        if (rc != PST_E_UNSUPPORTED)
            return rc;
        char note[PST_IO_NOTE_BYTES];
        (void)snprintf(note, sizeof note, "using backend \"%s\" instead of \"%s\": %.400s",
                       pst_io_pread_ops.name, pst_io_uring_ops.name, pst_error_text());
        add_note(notes, note_bytes, note);
        return try_backend(b, &c, &pst_io_pread_ops);
    }
    const struct pst_io_backend_ops *ops = pst_io_backend_named(want);
    return ops != NULL ? try_backend(b, &c, ops) : PST_E_ARG;
}

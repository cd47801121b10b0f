/* mmap.c: a mapping and memcpy, as in DGL and NumPy: the baseline that papers compare with. A page fault
 * stops the whole stage; that is the point of the comparison. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/lib/io/backend.h"
#include "common/error.h"

struct mapping {
    char *base; /* NULL: the file is empty or not open */
    size_t bytes;
};

struct maps {
    struct pst_io_file *files;
    uint32_t n;
    struct pst_io_op *head, *tail; /* posted */
    struct mapping map[];
};

static void mmap_close(struct pst_io_backend *b)
{
    struct maps *m = b->impl;
    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->map[i].base != NULL)
            (void)munmap(m->map[i].base,
                         pst_align_up(m->map[i].bytes, PST_PAGE)); /* as in pst_array_close() */
    }
    free(m);
    b->impl = NULL;
}

static pst_rc mmap_open(struct pst_io_backend *b, const struct pst_io_config *config,
                        char note[PST_IO_NOTE_BYTES])
{
    (void)note;
    struct maps *m = calloc(1, sizeof *m + config->nfiles * sizeof m->map[0]);
    if (m == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the list of memory mappings");
    b->impl = m;
    m->files = config->files;
    m->n = config->nfiles;
    for (uint32_t i = 0; i < m->n; i++) {
        struct stat st;
        if (m->files[i].fd < 0 || fstat(m->files[i].fd, &st) != 0 || st.st_size == 0)
            continue;
        void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, m->files[i].fd, 0);
        if (base == MAP_FAILED) {
            pst_rc rc = pst_fail_errno("mapping %s", m->files[i].path);
            mmap_close(b);
            return rc;
        }
        m->map[i] = (struct mapping){base, (size_t)st.st_size};
    }
    return PST_OK;
}

static void mmap_post(struct pst_io_backend *b, struct pst_io_op *op)
{
    struct maps *m = b->impl;
    op->next = NULL;
    if (m->tail != NULL)
        m->tail->next = op;
    else
        m->head = op;
    m->tail = op;
}

static pst_rc mmap_ring(struct pst_io_backend *b)
{
    (void)b;
    return PST_OK;
}

static int64_t copy_out(const struct maps *m, const struct pst_io_op *op)
{
    const struct mapping *map = &m->map[op->file];
    struct stat st;
    if (fstat(m->files[op->file].fd, &st) != 0)
        return -errno;
    /* a file that has shrunk since would end the process by SIGBUS */
    uint64_t end = (uint64_t)st.st_size < map->bytes ? (uint64_t)st.st_size : map->bytes;
    uint64_t at = op->at;
    int64_t moved = 0;
    for (int i = 0; i < op->niov && at < end; i++) {
        uint64_t bytes = op->iov[i].iov_len < end - at ? op->iov[i].iov_len : end - at;
        memcpy(op->iov[i].iov_base, map->base + at, bytes);
        at += bytes;
        moved += (int64_t)bytes;
    }
    return moved;
}

static int mmap_poll(struct pst_io_backend *b, struct pst_io_op **done, int max)
{
    struct maps *m = b->impl;
    int n = 0;
    while (n < max && m->head != NULL) {
        struct pst_io_op *op = m->head;
        m->head = op->next;
        if (m->head == NULL)
            m->tail = NULL;
        if (op->write) {
            ssize_t moved = pwritev(m->files[op->file].fd, op->iov, op->niov, (off_t)op->at);
            op->result = moved >= 0 ? moved : -errno;
        } else {
            op->result = copy_out(m, op);
        }
        done[n++] = op;
    }
    return n;
}

static int mmap_fds(const struct pst_io_backend *b, int fds[PST_IO_FDS_MAX])
{
    (void)b;
    (void)fds;
    return 0;
}

const struct pst_io_backend_ops pst_io_mmap_ops = {
    .name = "mmap",
    .copies = true,
    .open = mmap_open,
    .post = mmap_post,
    .ring = mmap_ring,
    .poll = mmap_poll,
    .fds = mmap_fds,
    .close = mmap_close,
};

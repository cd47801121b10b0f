/* hotness_edges.c: the window. */
#include "stages/lib/plan/hotness_edges.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/store.h"

static pst_rc open_file(struct pst_hotness_edges *e)
{
    e->fd = open(e->file->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    e->direct = e->fd >= 0;
    if (e->fd < 0 && errno == EINVAL)
        e->fd = open(e->file->path, O_RDONLY | O_CLOEXEC);
    return e->fd >= 0 ? PST_OK : pst_fail_errno("cannot open the edges %s", e->file->path);
}

pst_rc pst_hotness_edges_open(struct pst_hotness_edges *e, const struct pst_csc *graph,
                              const struct pst_array *file, uint64_t window_bytes)
{
    *e = (struct pst_hotness_edges){
        .file = file, .entry_bytes = graph->index_bytes, .all = graph->edges, .fd = -1};
    if (file == NULL) {
        e->entries = graph->indices;
        e->end = e->all;
        return PST_OK;
    }
    e->window_bytes = pst_align_up(window_bytes, PST_PAGE);
    e->window = aligned_alloc(PST_PAGE, e->window_bytes);
    if (e->window == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRIu64 " bytes to read edges",
                        e->window_bytes);
    const pst_rc rc = open_file(e);
    if (rc != PST_OK)
        pst_hotness_edges_close(e);
    return rc;
}

void pst_hotness_edges_close(struct pst_hotness_edges *e)
{
    if (e->file != NULL && e->fd >= 0)
        (void)close(e->fd);
    free(e->window);
    *e = (struct pst_hotness_edges){.fd = -1};
}

/* Reads the window from byte `from` on, or as much as the file has. */
static pst_rc read_window(const struct pst_hotness_edges *e, uint64_t from, uint64_t *bytes)
{
    *bytes = 0;
    while (*bytes < e->window_bytes) {
        const ssize_t n = pread(e->fd, e->window + *bytes, e->window_bytes - *bytes, (off_t)(from + *bytes));
        if (n < 0 && errno != EINTR)
            return pst_fail_errno("cannot read the edges %s at byte %" PRIu64, e->file->path, from + *bytes);
        if (n == 0)
            break;
        *bytes += n > 0 ? (uint64_t)n : 0;
        if (*bytes % PST_PAGE != 0) /* the end of the file; a direct read must begin at a sector */
            break;
    }
    if (!e->direct)
        (void)posix_fadvise(e->fd, (off_t)from, (off_t)*bytes, POSIX_FADV_DONTNEED);
    return PST_OK;
}

pst_rc pst_hotness_edges_move(struct pst_hotness_edges *e, int64_t at)
{
    const uint64_t size = (uint64_t)e->entry_bytes;
    const uint64_t begin = e->file->data_at + (uint64_t)at * size, from = begin & ~(uint64_t)(PST_PAGE - 1);
    uint64_t bytes;
    const pst_rc rc = read_window(e, from, &bytes);
    if (rc != PST_OK)
        return rc;
    const uint64_t before = begin - from; /* earlier entries, and perhaps the end of the header */
    if (bytes < before + size)
        return pst_fail(PST_E_IO,
                        "%s ends before edge %" PRId64 " of %" PRId64
                        ": the file became shorter while it was being read",
                        e->file->path, at, e->all);
    e->entries = e->window + before;
    e->first = at;
    e->end = pst_min_i64(e->all, at + (int64_t)((bytes - before) / size));
    return PST_OK;
}

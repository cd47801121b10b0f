#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../error.h"
#include "import_parts.h"

/* Reads blocks of an edge array through the page cache, not a mapping: what was read is not resident. Two
 * descriptors, so that the kernel reads ahead on both rows of (2, E). */
struct edge_reader {
    const struct pst_array *a;
    int fd[2];
    void *raw[2];
    int64_t *source, *target;
};

static pst_rc open_reader(struct edge_reader *r, const struct pst_array *a)
{
    *r = (struct edge_reader){.a = a, .fd = {-1, -1}};
    size_t bytes = 2 * PST_EDGE_BLOCK * sizeof(int64_t);
    for (int i = 0; i < 2; i++) {
        r->fd[i] = open(a->path, O_RDONLY | O_CLOEXEC);
        if (r->fd[i] < 0)
            return pst_fail_errno("cannot open %s", a->path);
        (void)posix_fadvise(r->fd[i], 0, 0, POSIX_FADV_SEQUENTIAL);
        r->raw[i] = calloc(1, bytes);
    }
    r->source = malloc(bytes / 2);
    r->target = malloc(bytes / 2);
    return r->raw[0] != NULL && r->raw[1] != NULL && r->source != NULL && r->target != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "%s: no memory for a block of edges", a->path);
}

static void close_reader(struct edge_reader *r)
{
    for (int i = 0; i < 2; i++) {
        if (r->fd[i] >= 0)
            (void)close(r->fd[i]);
        free(r->raw[i]);
    }
    free(r->source);
    free(r->target);
}

static pst_rc read_items(const struct edge_reader *r, int which, int64_t first, int64_t n)
{
    size_t item = pst_dtype_bytes(r->a->dtype), bytes = (size_t)n * item;
    off_t at = (off_t)(r->a->data_at + (uint64_t)first * item);
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(r->fd[which], (char *)r->raw[which] + done, bytes - done, at + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return pst_fail_errno("%s: cannot read at byte %jd", r->a->path, (intmax_t)at);
        if (got == 0)
            return pst_fail(PST_E_FORMAT, "%s: ends at byte %jd: it changed while it was read", r->a->path,
                            (intmax_t)at + (intmax_t)done);
        done += (size_t)got;
    }
    return PST_OK;
}

/* Every `step`th id of raw from `at` on. */
static void take(const void *raw, enum pst_dtype dtype, int64_t at, int64_t step, int64_t *out, int64_t n)
{
    if (dtype == PST_I32)
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const int32_t *)raw)[at + i * step];
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const int64_t *)raw)[at + i * step];
}

static pst_rc read_block(struct edge_reader *r, const struct pst_importing *im, int64_t first, int64_t n)
{
    bool wide = im->edges_2xe;
    pst_rc rc = read_items(r, 0, wide ? first : 2 * first, wide ? n : 2 * n);
    if (rc == PST_OK && wide)
        rc = read_items(r, 1, im->edges + first, n);
    if (rc != PST_OK)
        return rc;
    take(r->raw[0], r->a->dtype, 0, wide ? 1 : 2, r->source, n);
    take(r->raw[wide ? 1 : 0], r->a->dtype, wide ? 0 : 1, wide ? 1 : 2, r->target, n);
    return PST_OK;
}

/* Ids of one block that are out of range go to the list of problems. */
static void check_block(struct pst_importing *im, const struct edge_reader *r, int64_t first, int64_t n,
                        int64_t *bad)
{
    uint64_t limit = (uint64_t)(im->vertices >= 0 ? im->vertices : PST_CSC_ID_MAX), odd = 0;
    for (int64_t i = 0; i < n; i++)
        odd |= (uint64_t)((uint64_t)r->source[i] >= limit) | (uint64_t)((uint64_t)r->target[i] >= limit);
    for (int64_t i = 0; odd != 0 && i < n; i++) {
        if ((uint64_t)r->source[i] >= limit)
            pst_import_tell(im, bad, r->a, first + i, r->source[i], (int64_t)limit, "source of edge");
        if ((uint64_t)r->target[i] >= limit)
            pst_import_tell(im, bad, r->a, first + i, r->target[i], (int64_t)limit, "target of edge");
    }
}

pst_rc pst_import_feed(struct pst_importing *im, struct pst_csc *csc, struct pst_progress *progress)
{
    struct edge_reader r;
    int64_t bad = 0;
    pst_rc rc = open_reader(&r, &im->src[PST_SRC_EDGES]);
    pst_progress_begin(progress, "edges: reading", (uint64_t)im->edges, false);
    for (int64_t first = 0; rc == PST_OK && first < im->edges; first += PST_EDGE_BLOCK) {
        int64_t n = pst_min_i64(PST_EDGE_BLOCK, im->edges - first);
        if ((rc = read_block(&r, im, first, n)) != PST_OK)
            break;
        check_block(im, &r, first, n, &bad);
        if (bad == 0) /* with bad ids there will be no dataset: the rest is only looked at */
            rc = pst_csc_add(csc, r.source, r.target, NULL, n);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, (uint64_t)n);
    }
    if (rc == PST_OK)
        pst_progress_end(progress);
    pst_import_tell_rest(im, bad, r.a);
    close_reader(&r);
    return rc;
}

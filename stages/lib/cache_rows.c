#include "cache_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../common/store/store.h"
#include "../../kernels/kernels.h"
#include "error.h"
#include "memory.h"

#define WINDOW_BYTES ((uint64_t)4 << 20) /* one read: large enough that a drive's rate is its bandwidth */
#define GAP_BYTES ((uint64_t)64 << 10)   /* reading over a gap this small costs less than another read */

static int ascending(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static pst_rc read_exactly(int fd, char *out, uint64_t bytes, uint64_t at, const char *path)
{
    while (bytes > 0) {
        ssize_t n = pread(fd, out, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pst_fail_errno("reading %s at byte %llu for the cache", path, (unsigned long long)at);
        if (n == 0)
            return pst_fail(PST_E_FORMAT, "%s ends at byte %llu, within its rows", path,
                            (unsigned long long)at);
        out += n;
        bytes -= (uint64_t)n;
        at += (uint64_t)n;
    }
    return PST_OK;
}

/* Reads sorted ids[0..n) in windows that span small gaps. */
static pst_rc read_rows(int fd, const struct pst_array *features, uint64_t stride, const int64_t *ids,
                        int64_t n, char *rows, char *window, uint64_t window_bytes)
{
    for (int64_t first = 0; first < n;) {
        int64_t end = first + 1;
        while (end < n && (uint64_t)(ids[end] - ids[end - 1] - 1) * stride <= GAP_BYTES &&
               (uint64_t)(ids[end] - ids[first] + 1) * stride <= window_bytes)
            end++;
        uint64_t at = features->data_at + (uint64_t)ids[first] * stride;
        uint64_t bytes = (uint64_t)(ids[end - 1] - ids[first] + 1) * stride;
        pst_rc rc = read_exactly(fd, window, bytes, at, features->path);
        if (rc != PST_OK)
            return rc;
        for (int64_t i = first; i < end; i++)
            memcpy(rows + (uint64_t)i * stride, window + (uint64_t)(ids[i] - ids[first]) * stride, stride);
        /* the rows live here now; their pages would only crowd out the topology's */
        (void)posix_fadvise(fd, (off_t)at, (off_t)bytes, POSIX_FADV_DONTNEED);
        first = end;
    }
    return PST_OK;
}

pst_rc pst_cache_rows_load(struct pst_cache_rows *c, const struct pst_array *features, uint64_t stride,
                           const int64_t *vertices, int64_t n)
{
    *c = (struct pst_cache_rows){.n = n};
    if (n == 0)
        return PST_OK;
    uint64_t window_bytes = WINDOW_BYTES > stride ? WINDOW_BYTES : stride;
    char *window = malloc(window_bytes);
    int64_t *ids = malloc((size_t)n * sizeof *ids);
    c->rows = pst_random_access_alloc((uint64_t)n * stride);
    c->index_memory = pst_random_access_alloc(pst_k_cache_bytes(n));
    pst_rc rc = PST_OK;
    int fd = -1;
    if (window == NULL || ids == NULL || c->rows == NULL || c->index_memory == NULL) {
        rc = pst_fail(PST_E_NOMEM,
                      "no memory to cache %lld rows of %llu bytes; give the planner a smaller cpu_cache",
                      (long long)n, (unsigned long long)stride);
        goto out;
    }
    memcpy(ids, vertices, (size_t)n * sizeof *ids);
    qsort(ids, (size_t)n, sizeof *ids, ascending);
    if (ids[0] < 0 || ids[n - 1] >= features->shape[0]) {
        rc = pst_fail(PST_E_FORMAT, "the plan caches vertex %lld, but %s has %lld rows",
                      (long long)(ids[0] < 0 ? ids[0] : ids[n - 1]), features->path,
                      (long long)features->shape[0]);
        goto out;
    }
    for (int64_t i = 1; i < n; i++) {
        if (ids[i] == ids[i - 1]) {
            rc = pst_fail(PST_E_FORMAT, "the plan caches vertex %lld twice", (long long)ids[i]);
            goto out;
        }
    }
    fd = open(features->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        rc = pst_fail_errno("opening %s for the cache", features->path);
        goto out;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    rc = read_rows(fd, features, stride, ids, n, c->rows, window, window_bytes);
    if (rc == PST_OK)
        c->index = pst_k_cache_init(c->index_memory, ids, n);
out:
    if (fd >= 0)
        (void)close(fd);
    free(ids);
    free(window);
    if (rc != PST_OK)
        pst_cache_rows_release(c);
    return rc;
}

void pst_cache_rows_release(struct pst_cache_rows *c)
{
    free(c->rows);
    free(c->index_memory);
    *c = (struct pst_cache_rows){0};
}

#include "cache_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../common/store/store.h"
#include "device.h"
#include "error.h"
#include "memory.h"

#define WINDOW_BYTES ((uint64_t)4 << 20) /* one read: large enough that a drive's rate is its bandwidth */
#define LOAD_BYTES ((uint64_t)32 << 20)  /* on a GPU: in flight */
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

/* On a GPU: rows that go there at once, by way of the host's memory. */
static int64_t load_rows(uint64_t stride, int64_t n)
{
    return pst_max_i64(1, pst_min_i64(n, (int64_t)(LOAD_BYTES / stride)));
}

static pst_rc take_memory(struct pst_cache_rows *c, uint64_t stride)
{
    if (c->device == NULL) {
        c->rows = pst_random_access_alloc((uint64_t)c->n * stride);
        c->index_memory = pst_random_access_alloc(pst_k_cache_bytes(c->n));
        return c->rows != NULL && c->index_memory != NULL
                   ? PST_OK
                   : pst_fail(
                         PST_E_NOMEM,
                         "no memory to cache %lld rows of %llu bytes; give the planner a smaller cpu_cache",
                         (long long)c->n, (unsigned long long)stride);
    }
    const char *what = "cached rows (give the planner a smaller cpu_cache)";
    void *rows;
    pst_rc rc = pst_device_take(c->device, PST_MEMORY_DEVICE, (uint64_t)c->n * stride, what, &rows);
    c->rows = rows;
    if (rc == PST_OK)
        rc = pst_device_take(c->device, PST_MEMORY_DEVICE, c->device->twin->cache_bytes(c->n), what,
                             &c->index_memory);
    return rc;
}

static pst_rc check_ids(const int64_t *ids, int64_t n, const struct pst_array *features)
{
    if (ids[0] < 0 || ids[n - 1] >= features->shape[0])
        return pst_fail(PST_E_FORMAT, "the plan caches vertex %lld, but %s has %lld rows",
                        (long long)(ids[0] < 0 ? ids[0] : ids[n - 1]), features->path,
                        (long long)features->shape[0]);
    for (int64_t i = 1; i < n; i++)
        if (ids[i] == ids[i - 1])
            return pst_fail(PST_E_FORMAT, "the plan caches vertex %lld twice", (long long)ids[i]);
    return PST_OK;
}

/* Rows and index of a GPU, from where rows are read to (of load_rows). */
static pst_rc load_device(struct pst_cache_rows *c, int fd, const struct pst_array *features, uint64_t stride,
                          const int64_t *ids, char *window, uint64_t window_bytes)
{
    struct pst_device *d = c->device;
    const int64_t most = load_rows(stride, c->n);
    void *staging, *device_ids = NULL;
    pst_rc rc = pst_device_take(d, PST_MEMORY_PINNED, (uint64_t)most * stride, "rows on their way", &staging);
    for (int64_t at = 0; at < c->n && rc == PST_OK; at += most) {
        const int64_t n = pst_min_i64(most, c->n - at);
        rc = read_rows(fd, features, stride, ids + at, n, staging, window, window_bytes);
        if (rc != PST_OK)
            break;
        (void)d->twin->copy(d->q, c->rows + (uint64_t)at * stride, staging, (uint64_t)n * stride);
        rc = pst_device_wait(d);
    }
    if (rc == PST_OK)
        rc = pst_device_take(d, PST_MEMORY_DEVICE, (uint64_t)c->n * sizeof *ids, "the ids of cached rows",
                             &device_ids);
    if (rc == PST_OK) {
        (void)d->twin->copy(d->q, device_ids, ids, (uint64_t)c->n * sizeof *ids);
        rc = pst_device_wait(d);
    }
    if (rc == PST_OK) {
        c->index = d->twin->cache_init(c->index_memory, device_ids, c->n);
        rc = c->index ? PST_OK : pst_fail(PST_E_IO, "%s: the cache's index cannot be made", d->name);
    }
    pst_device_give(d, staging);
    pst_device_give(d, device_ids);
    return rc;
}

pst_rc pst_cache_rows_load(struct pst_cache_rows *c, struct pst_device *device,
                           const struct pst_array *features, uint64_t stride, const int64_t *vertices,
                           int64_t n)
{
    *c = (struct pst_cache_rows){.n = n, .device = pst_device_is_cuda(device) ? device : NULL};
    if (n == 0)
        return PST_OK;
    uint64_t window_bytes = WINDOW_BYTES > stride ? WINDOW_BYTES : stride;
    char *window = malloc(window_bytes);
    int64_t *ids = malloc((size_t)n * sizeof *ids);
    pst_rc rc = PST_OK;
    int fd = -1;
    if (window == NULL || ids == NULL) {
        rc = pst_fail(PST_E_NOMEM, "no memory to look for %lld cached rows", (long long)n);
        goto out;
    }
    memcpy(ids, vertices, (size_t)n * sizeof *ids);
    qsort(ids, (size_t)n, sizeof *ids, ascending);
    rc = check_ids(ids, n, features);
    if (rc == PST_OK)
        rc = take_memory(c, stride);
    if (rc != PST_OK)
        goto out;
    fd = open(features->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        rc = pst_fail_errno("opening %s for the cache", features->path);
        goto out;
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    if (c->device != NULL) {
        rc = load_device(c, fd, features, stride, ids, window, window_bytes);
        goto out;
    }
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
    if (c->device != NULL) {
        pst_device_give(c->device, c->rows);
        pst_device_give(c->device, c->index_memory);
    } else {
        free(c->rows);
        free(c->index_memory);
    }
    *c = (struct pst_cache_rows){0};
}

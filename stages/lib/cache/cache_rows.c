/* cache_rows.c: reads cached rows in large pieces of the files. */
#include "stages/lib/cache/cache_rows.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/store/dataset/rows.h"
#include "common/store/read_ahead.h"
#include "common/store/vertices.h"
#include "stages/lib/device/device.h"
#include "common/error.h"
#include "common/util/memory.h"

#define PIECE_BYTES ((uint64_t)4 << 20) /* one read: large enough to reach a drive's bandwidth */
#define LOAD_BYTES ((uint64_t)32 << 20) /* on a GPU: one copy from host memory */
#define GAP_BYTES ((uint64_t)64 << 10)  /* reading a smaller gap costs less than another read */

/* The files, and the largest piece of them that is read at a time. */
struct reading {
    struct pst_row_files files;
    uint64_t most;
};

/* Rows of one stripe that lie close together, which one read brings. */
struct piece {
    int64_t first, last, next; /* positions of ids: of its first and last row, and of the first after it */
    uint64_t at, bytes;        /* in the file */
};

/* The position of the first id, from position i on, that lies in stripe k; n: there is none. */
static int64_t next_of(const struct reading *r, const int64_t *ids, int64_t n, int64_t i, int k)
{
    while (i < n && ids[i] % r->files.files != k)
        i++;
    return i;
}

static struct piece piece_from(const struct reading *r, int k, const int64_t *ids, int64_t n, int64_t first)
{
    const int64_t files = r->files.files, from = ids[first] / files;
    const uint64_t stride = r->files.stride_bytes;
    const struct pst_array *a = &r->files.file[k];
    struct piece p = {.first = first, .last = first};
    while ((p.next = next_of(r, ids, n, p.last + 1, k)) < n) {
        if ((uint64_t)(ids[p.next] / files - ids[p.last] / files - 1) * stride > GAP_BYTES ||
            (uint64_t)(ids[p.next] / files - from + 1) * stride > r->most)
            break;
        p.last = p.next;
    }
    p.at = a->data_at + (uint64_t)(from - a->first_row) * stride;
    p.bytes = (uint64_t)(ids[p.last] / files - from + 1) * stride;
    return p;
}

static void copy_piece(const struct reading *r, int k, const int64_t *ids, int64_t n, const struct piece *p,
                       const char *from, char *rows)
{
    const uint64_t stride = r->files.stride_bytes;
    const int64_t files = r->files.files, first = ids[p->first] / files;
    for (int64_t i = p->first; i <= p->last; i = next_of(r, ids, n, i + 1, k))
        memcpy(rows + (uint64_t)i * stride, from + (uint64_t)(ids[i] / files - first) * stride, stride);
}

/* Reads the rows of one stripe. While rows are copied, the next ones are read. */
static pst_rc read_stripe(const struct reading *r, int k, const int64_t *ids, int64_t n, char *rows)
{
    const char *path = r->files.file[k].path, *from;
    struct pst_read_ahead *reader;
    struct piece next = {.next = next_of(r, ids, n, 0, k)};
    uint64_t bytes;
    if (next.next >= n)
        return PST_OK;
    pst_rc rc = pst_read_ahead_open(&reader, path, r->most);
    if (rc != PST_OK)
        return rc;
    next = piece_from(r, k, ids, n, next.next);
    pst_read_ahead_ask(reader, next.at, next.bytes);
    for (struct piece p = next; rc == PST_OK && p.first < n; p = next) {
        rc = pst_read_ahead_take(reader, &from, &bytes);
        if (rc == PST_OK && bytes < p.bytes)
            rc = pst_fail(
                PST_E_FORMAT,
                "%s ends at byte %llu, earlier than expected: the file was truncated while it was in use",
                path, (unsigned long long)(p.at + bytes));
        if (rc != PST_OK)
            break;
        next.first = p.next;
        if (p.next < n) {
            next = piece_from(r, k, ids, n, p.next);
            pst_read_ahead_ask(reader, next.at, next.bytes);
        }
        copy_piece(r, k, ids, n, &p, from, rows);
    }
    pst_read_ahead_close(reader);
    return rc == PST_OK ? rc : pst_wrap(rc, "cannot fill the cache");
}

/* The same for joined types, in runs of consecutive ids. */
static pst_rc read_types(const struct reading *r, const int64_t *ids, int64_t n, char *rows)
{
    pst_rc rc = PST_OK;
    for (int64_t i = 0, end; i < n && rc == PST_OK; i = end) {
        for (end = i + 1; end < n && ids[end] == ids[end - 1] + 1;)
            end++;
        rc = pst_row_files_read(&r->files, ids[i], end - i, rows + (uint64_t)i * r->files.stride_bytes);
    }
    return rc == PST_OK ? rc : pst_wrap(rc, "cannot fill the cache");
}

/* Reads sorted ids[0..n) to rows, one after the other. */
static pst_rc read_rows(const struct reading *r, const int64_t *ids, int64_t n, char *rows)
{
    pst_rc rc = PST_OK;
    if (r->files.file->joined != NULL)
        return read_types(r, ids, n, rows);
    for (int k = 0; k < r->files.files && rc == PST_OK; k++)
        rc = read_stripe(r, k, ids, n, rows);
    return rc;
}

static pst_rc open_reading(struct reading *r, const struct pst_array *features, int files, uint64_t stride)
{
    pst_rc rc = pst_row_files_open(&r->files, features, files, stride);
    for (int k = 0; k < r->files.files; k++)
        if (r->files.fd[k] >= 0)
            (void)posix_fadvise(r->files.fd[k], 0, 0, POSIX_FADV_RANDOM);
    return rc;
}

/* On a GPU: how many rows one copy from host memory takes. */
static int64_t load_rows(uint64_t stride, int64_t n)
{
    return pst_max_i64(1, pst_min_i64(n, (int64_t)(LOAD_BYTES / stride)));
}

static uint64_t index_at(int64_t n, uint64_t stride)
{
    return pst_align_up((uint64_t)n * stride, PST_PAGE);
}

uint64_t pst_cache_rows_bytes(int64_t n, uint64_t stride)
{
    return index_at(n, stride) + pst_k_cache_bytes(n);
}

void pst_cache_rows_borrow(struct pst_cache_rows *c, void *memory, int64_t gpu_n, int64_t n, uint64_t stride)
{
    *c = (struct pst_cache_rows){.n = n, .gpu_n = gpu_n, .rows = memory, .borrowed = true};
    c->index_memory = c->rows + index_at(n, stride);
    c->index = c->index_memory;
}

static pst_rc take_memory(struct pst_cache_rows *c, uint64_t stride)
{
    if (c->borrowed)
        return PST_OK;
    if (c->device == NULL) {
        c->rows = pst_hugepage_alloc((uint64_t)c->n * stride);
        c->index_memory = pst_hugepage_alloc(pst_k_cache_bytes(c->n));
        return c->rows != NULL && c->index_memory != NULL
                   ? PST_OK
                   : pst_fail(PST_E_NOMEM,
                              "out of memory: cannot cache %lld rows of %llu bytes; set a smaller cpu_cache "
                              "for the planner",
                              (long long)c->n, (unsigned long long)stride);
    }
    const char *what = "cached rows (set a smaller gpu_cache for the planner)";
    const uint64_t near = (uint64_t)c->gpu_n * stride, far = (uint64_t)(c->n - c->gpu_n) * stride;
    void *rows = NULL, *far_rows = NULL;
    pst_rc rc = near > 0 ? pst_device_take(c->device, PST_TWIN_MEMORY_DEVICE, near, what, &rows) : PST_OK;
    if (rc == PST_OK && far > 0)
        rc = pst_device_take(c->device, PST_TWIN_MEMORY_PINNED, far,
                             "cached rows (set a smaller cpu_cache for the planner)", &far_rows);
    if (rc == PST_OK)
        rc = pst_device_take(c->device, PST_TWIN_MEMORY_DEVICE, c->device->twin->cache_bytes(c->n), what,
                             &c->index_memory);
    c->rows = rows;
    c->far = far_rows;
    return rc;
}

static pst_rc check_ids(const int64_t *ids, int64_t n, const struct pst_array *features, int64_t rows)
{
    const int64_t first = features->first_row;
    if (ids[0] < first || ids[n - 1] >= first + rows)
        return pst_fail(PST_E_FORMAT,
                        "the plan caches the features of vertex %lld, but %s has only %lld rows, from vertex "
                        "%lld on: make a new plan",
                        (long long)(ids[0] < first ? ids[0] : ids[n - 1]), features->path, (long long)rows,
                        (long long)first);
    for (int64_t i = 1; i < n; i++)
        if (ids[i] == ids[i - 1])
            return pst_fail(PST_E_FORMAT,
                            "the plan caches the features of vertex %lld twice: make a new plan",
                            (long long)ids[i]);
    return PST_OK;
}

/* The order of the rows: the tiers one after the other, each sorted. */
static void sort_tiers(int64_t *ids, const int64_t *vertices, int64_t gpu_n, int64_t n)
{
    memcpy(ids, vertices, (size_t)n * sizeof *ids);
    pst_vertices_sort(ids, gpu_n);
    pst_vertices_sort(ids + gpu_n, n - gpu_n);
}

/* Loads the rows of the GPU tier into the GPU's memory, through a pinned buffer. */
static pst_rc load_near(struct pst_cache_rows *c, const struct reading *r, const int64_t *ids)
{
    struct pst_device *d = c->device;
    const uint64_t stride = r->files.stride_bytes;
    const int64_t most = load_rows(stride, c->gpu_n);
    void *staging = NULL;
    pst_rc rc = pst_device_take(d, PST_TWIN_MEMORY_PINNED, (uint64_t)most * stride,
                                "the buffer that cached rows pass through", &staging);
    for (int64_t at = 0; at < c->gpu_n && rc == PST_OK; at += most) {
        const int64_t n = pst_min_i64(most, c->gpu_n - at);
        rc = read_rows(r, ids + at, n, staging);
        if (rc != PST_OK)
            break;
        (void)d->twin->copy(d->q, c->rows + (uint64_t)at * stride, staging, (uint64_t)n * stride);
        rc = pst_device_wait(d);
    }
    pst_device_give(d, staging);
    return rc;
}

/* Loads rows and index for a GPU. */
static pst_rc load_device(struct pst_cache_rows *c, const struct reading *r, const int64_t *ids)
{
    struct pst_device *d = c->device;
    void *device_ids = NULL;
    pst_rc rc = c->gpu_n > 0 ? load_near(c, r, ids) : PST_OK;
    if (rc == PST_OK)
        rc = read_rows(r, ids + c->gpu_n, c->n - c->gpu_n, c->far);
    if (rc == PST_OK)
        rc = pst_device_take(d, PST_TWIN_MEMORY_DEVICE, (uint64_t)c->n * sizeof *ids,
                             "the ids of cached rows", &device_ids);
    if (rc == PST_OK) {
        (void)d->twin->copy(d->q, device_ids, ids, (uint64_t)c->n * sizeof *ids);
        rc = pst_device_wait(d);
    }
    if (rc == PST_OK) {
        c->index = d->twin->cache_init(c->index_memory, device_ids, c->n);
        rc = c->index ? PST_OK : pst_fail(PST_E_IO, "%s: cannot create the index of the cache", d->name);
    }
    pst_device_give(d, device_ids);
    return rc;
}

pst_rc pst_cache_rows_load(struct pst_cache_rows *c, struct pst_device *device, void *memory,
                           const struct pst_array *features, int files, int64_t rows, uint64_t stride,
                           const int64_t *vertices, int64_t gpu_n, int64_t n)
{
    const bool on_gpu = device != NULL && pst_device_is_cuda(device);
    *c = (struct pst_cache_rows){.n = n, .gpu_n = gpu_n, .device = on_gpu ? device : NULL};
    assert(memory == NULL || c->device == NULL);
    assert(gpu_n >= 0 && gpu_n <= n);
    if (memory != NULL)
        pst_cache_rows_borrow(c, memory, gpu_n, n, stride);
    if (n == 0)
        return PST_OK;
    struct reading reading = {.most = PIECE_BYTES > stride ? PIECE_BYTES : stride};
    int64_t *ids = malloc((size_t)n * sizeof *ids);
    pst_rc rc = PST_OK;
    if (ids == NULL) {
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot read %lld cached rows", (long long)n);
        goto out;
    }
    memcpy(ids, vertices, (size_t)n * sizeof *ids);
    pst_vertices_sort(ids, n);
    rc = check_ids(ids, n, features, rows);
    if (rc == PST_OK)
        rc = take_memory(c, stride);
    if (rc == PST_OK)
        rc = open_reading(&reading, features, files, stride);
    if (rc != PST_OK)
        goto out;
    if (gpu_n > 0)
        sort_tiers(ids, vertices, gpu_n, n);
    if (c->device != NULL) {
        rc = load_device(c, &reading, ids);
        goto out;
    }
    rc = read_rows(&reading, ids, gpu_n, c->rows);
    if (rc == PST_OK)
        rc = read_rows(&reading, ids + gpu_n, n - gpu_n, c->rows + (uint64_t)gpu_n * stride);
    if (rc == PST_OK)
        c->index = pst_k_cache_init(c->index_memory, ids, n);
out:
    pst_row_files_close(&reading.files);
    free(ids);
    if (rc != PST_OK && memory == NULL)
        pst_cache_rows_release(c);
    else if (rc != PST_OK)
        *c = (struct pst_cache_rows){0};
    return rc;
}

pst_rc pst_cache_rows_index(const int64_t *vertices, int64_t gpu_n, int64_t n, void **memory,
                            struct pst_cache **index)
{
    int64_t *ids = malloc((size_t)n * sizeof *ids);
    *memory = pst_hugepage_alloc(pst_k_cache_bytes(n));
    if (ids != NULL && *memory != NULL) {
        sort_tiers(ids, vertices, gpu_n, n);
        *index = pst_k_cache_init(*memory, ids, n);
    }
    free(ids);
    return ids != NULL && *memory != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the index of %lld cached rows",
                          (long long)n);
}

pst_rc pst_cache_rows_write(struct pst_device *device, void *to, const struct pst_array *features, int files,
                            int64_t rows, uint64_t stride, const int64_t *vertices, int64_t n)
{
    struct pst_cache_rows c = {.n = n, .gpu_n = n, .rows = to, .device = device};
    struct reading reading = {.most = PIECE_BYTES > stride ? PIECE_BYTES : stride};
    if (n == 0)
        return PST_OK;
    pst_rc rc = check_ids(vertices, n, features, rows);
    if (rc == PST_OK) {
        rc = open_reading(&reading, features, files, stride);
        if (rc == PST_OK)
            rc = load_near(&c, &reading, vertices);
        pst_row_files_close(&reading.files);
    }
    return rc;
}

void pst_cache_rows_release(struct pst_cache_rows *c)
{
    if (c->device != NULL) {
        pst_device_give(c->device, c->rows);
        pst_device_give(c->device, c->far);
        pst_device_give(c->device, c->index_memory);
    } else if (!c->borrowed) {
        free(c->rows);
        free(c->index_memory);
    }
    *c = (struct pst_cache_rows){0};
}

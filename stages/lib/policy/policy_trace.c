/* policy_trace.c: writes and reads the vertices of batches. */
#include "stages/lib/policy/policy_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/error.h"

#define FIRST_BATCHES 1024 /* room for records at first; it doubles */

pst_rc pst_policy_trace_open(const char *path, bool empty, int *fd)
{
    *fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | (empty ? O_TRUNC : 0), 0666);
    return *fd >= 0 ? PST_OK
                    : pst_fail(PST_E_ARG, "the parameter trace_ids: cannot write the file \"%s\": %s", path,
                               strerror(errno));
}

pst_rc pst_policy_trace_append(int fd, uint64_t batch, uint32_t micro, const int64_t *ids, int64_t n)
{
    struct pst_policy_trace_record record = {
        .magic = PST_POLICY_TRACE_MAGIC, .batch = batch, .micro = micro, .n = (uint64_t)n};
    const struct iovec parts[2] = {{&record, sizeof record},
                                   {(void *)(uintptr_t)ids, (size_t)n * sizeof *ids}};
    const ssize_t all = (ssize_t)(parts[0].iov_len + parts[1].iov_len);
    const ssize_t written = writev(fd, parts, 2);
    if (written == all)
        return PST_OK;
    return pst_fail(PST_E_IO, "trace_ids: cannot write the ids of batch %llu: %s", (unsigned long long)batch,
                    written < 0 ? strerror(errno) : "the file system is full");
}

/* ---- reading -------------------------------------------------------------------------------------- */

static pst_rc map_file(struct pst_policy_trace *t, const char *path)
{
    struct stat st;
    pst_rc rc = PST_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        const char *why = fd < 0 ? strerror(errno) : "expected a regular file";
        rc = pst_fail(PST_E_ARG, "cannot read the trace \"%s\": %s", path, why);
    } else if (st.st_size > 0) {
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED)
            rc = pst_fail(PST_E_ARG, "cannot map the trace \"%s\" into memory: %s", path, strerror(errno));
        else
            *t = (struct pst_policy_trace){.map = map, .map_bytes = (uint64_t)st.st_size};
    }
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

static pst_rc add_batch(struct pst_policy_trace *t, int64_t *room,
                        const struct pst_policy_trace_record *record, uint64_t at)
{
    if (t->n == *room) {
        const int64_t more = *room > 0 ? 2 * *room : FIRST_BATCHES;
        struct pst_policy_trace_batch *batches = realloc(t->batches, (size_t)more * sizeof *batches);
        if (batches == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: the trace has more than %lld batches",
                            (long long)t->n);
        t->batches = batches;
        *room = more;
    }
    t->batches[t->n++] = (struct pst_policy_trace_batch){
        .batch = record->batch,
        .micro = record->micro,
        .n = (int64_t)record->n,
        .ids = (const int64_t *)(const void *)((const char *)t->map + at + sizeof *record),
        .at = at};
    return PST_OK;
}

static pst_rc find_records(struct pst_policy_trace *t, const char *path)
{
    int64_t room = 0;
    pst_rc rc = PST_OK;
    for (uint64_t at = 0; at < t->map_bytes && rc == PST_OK;) {
        const uint64_t left = t->map_bytes - at;
        struct pst_policy_trace_record record = {.magic = PST_POLICY_TRACE_MAGIC};
        memcpy(&record, (const char *)t->map + at, left < sizeof record ? left : sizeof record);
        if (left >= sizeof record.magic && record.magic != PST_POLICY_TRACE_MAGIC)
            return pst_fail(PST_E_FORMAT,
                            "%s: byte %llu: no record begins here, so this is not a trace of ids (the "
                            "sampler's parameter trace_ids writes one)",
                            path, (unsigned long long)at);
        if (left < sizeof record || record.n > (left - sizeof record) / sizeof(int64_t)) {
            t->cut_bytes = left;
            break;
        }
        rc = add_batch(t, &room, &record, at);
        at += sizeof record + record.n * sizeof(int64_t);
    }
    return rc;
}

static int by_batch(const void *a, const void *b)
{
    const struct pst_policy_trace_batch *x = a, *y = b;
    if (x->batch != y->batch)
        return x->batch < y->batch ? -1 : 1;
    if (x->micro != y->micro)
        return x->micro < y->micro ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Keeps the last record of each micro-batch, in order. */
static void sort_batches(struct pst_policy_trace *t)
{
    int64_t kept = 0;
    if (t->n > 0)
        qsort(t->batches, (size_t)t->n, sizeof *t->batches, by_batch);
    for (int64_t i = 0; i < t->n; i++) {
        const struct pst_policy_trace_batch *b = &t->batches[i];
        if (kept > 0 && t->batches[kept - 1].batch == b->batch && t->batches[kept - 1].micro == b->micro)
            kept--;
        t->batches[kept++] = *b;
    }
    t->n = kept;
}

static int by_id(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* A policy needs distinct vertices. sorted: room for the ids of the largest batch. */
static pst_rc check_batch(struct pst_policy_trace *t, const struct pst_policy_trace_batch *b, int64_t *sorted,
                          const char *path)
{
    if (b->n == 0)
        return PST_OK;
    memcpy(sorted, b->ids, (size_t)b->n * sizeof *sorted);
    qsort(sorted, (size_t)b->n, sizeof *sorted, by_id);
    const char *wrong = sorted[0] < 0                   ? "has a negative id"
                        : sorted[b->n - 1] == INT64_MAX ? "has an id that is too large"
                                                        : NULL;
    for (int64_t i = 1; i < b->n && wrong == NULL; i++)
        wrong = sorted[i] == sorted[i - 1] ? "has the same id twice" : NULL;
    t->vertices = pst_max_i64(t->vertices, wrong == NULL ? sorted[b->n - 1] + 1 : 0);
    return wrong == NULL ? PST_OK
                         : pst_fail(PST_E_FORMAT, "%s: byte %llu: batch %llu %s", path,
                                    (unsigned long long)b->at, (unsigned long long)b->batch, wrong);
}

static pst_rc check_batches(struct pst_policy_trace *t, const char *path)
{
    for (int64_t i = 0; i < t->n; i++) {
        t->batch_max = pst_max_i64(t->batch_max, t->batches[i].n);
        t->ids += t->batches[i].n;
    }
    int64_t *sorted = malloc((size_t)pst_max_i64(1, t->batch_max) * sizeof *sorted);
    if (sorted == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: a batch has %lld ids", (long long)t->batch_max);
    pst_rc rc = PST_OK;
    for (int64_t i = 0; i < t->n && rc == PST_OK; i++)
        rc = check_batch(t, &t->batches[i], sorted, path);
    free(sorted);
    return rc;
}

pst_rc pst_policy_trace_read(struct pst_policy_trace *t, const char *path)
{
    *t = (struct pst_policy_trace){.map = NULL};
    pst_rc rc = map_file(t, path);
    if (rc == PST_OK)
        rc = find_records(t, path);
    if (rc != PST_OK)
        return rc;
    sort_batches(t);
    if (t->n == 0)
        return pst_fail(PST_E_FORMAT,
                        "%s: the trace has no complete batch: let the run train at least one batch", path);
    return check_batches(t, path);
}

void pst_policy_trace_close(struct pst_policy_trace *t)
{
    if (t->map != NULL)
        (void)munmap((void *)(uintptr_t)t->map, t->map_bytes);
    free(t->batches);
    *t = (struct pst_policy_trace){.map = NULL};
}

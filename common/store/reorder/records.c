/* records.c: a bucket sort of records by their new places. */
#include "common/store/reorder/records.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/file.h"

#define READ_BYTES (1u << 20) /* of the source at a time, unless one record is larger */
#define BUFFER_MAX (1u << 20) /* of a bucket on its way to the file */
#define BUFFER_MIN (16u << 10)
#define BUCKETS_MAX 4096

struct bucket {
    int64_t begin, end; /* places */
    uint64_t bytes, at; /* of its records; where they begin in the file */
    uint64_t written;   /* to the file */
    unsigned char *buffer;
    uint64_t fill;
};

struct job {
    const struct pst_records_spec *s;
    struct bucket *bucket;
    int64_t buckets;
    uint64_t buffer_bytes;
    unsigned char *chunk; /* of the source */
    uint64_t chunk_bytes;
    int fd; /* of the temporary file; -1: there is none */
    char path[4096];
};

static uint64_t bytes_of(const struct pst_records_spec *s, int64_t old)
{
    return s->fixed_bytes > 0 ? s->fixed_bytes : s->bytes_of(s->ctx, old);
}

static pst_rc no_memory(const struct pst_records_spec *s)
{
    return pst_fail(PST_E_NOMEM, "out of memory: cannot reorder %s within %" PRIu64 " bytes", s->what,
                    s->memory_bytes);
}

/* ---- buckets -------------------------------------------------------------------------------------- */

/* What all records need: a bucket has room for two of the largest, and each bucket has a buffer. */
static uint64_t least_memory(const struct pst_records_spec *s, uint64_t largest)
{
    uint64_t all = 0, need = PST_RECORDS_MEMORY_MIN;
    for (int64_t i = 0; i < s->n; i++)
        all += bytes_of(s, i) + PST_RECORDS_OVERHEAD;
    while (need / 4 < largest + PST_RECORDS_OVERHEAD ||
           (all / (need / 4) + 1 > BUCKETS_MAX || (all / (need / 4) + 1) * BUFFER_MIN > need / 4))
        need += need / 4;
    return need;
}

/* Half of the memory is for a bucket, a quarter for buffers and a quarter for what is read. */
static pst_rc cut(struct job *j)
{
    const struct pst_records_spec *s = j->s;
    const uint64_t room = s->memory_bytes / 2;
    uint64_t largest = 0, at = 0;
    int64_t begin = 0;
    j->bucket = calloc(BUCKETS_MAX + 1, sizeof *j->bucket);
    if (j->bucket == NULL)
        return no_memory(s);
    struct bucket *b = &j->bucket[0];
    for (int64_t i = 0; i < s->n; i++) {
        const uint64_t bytes = bytes_of(s, s->old_of[i] - s->first);
        const uint64_t with = b->bytes + bytes + (uint64_t)(i + 1 - begin) * PST_RECORDS_OVERHEAD;
        largest = bytes > largest ? bytes : largest;
        if (with > room && i > begin) {
            if (++j->buckets == BUCKETS_MAX)
                break; /* least_memory() says how much is needed */
            b = &j->bucket[j->buckets];
            *b = (struct bucket){.begin = i, .at = at};
            begin = i;
        }
        b->bytes += bytes;
        b->end = i + 1;
        at += bytes;
    }
    j->buckets++;
    const uint64_t need = least_memory(s, largest);
    if (s->memory_bytes < need)
        return pst_fail(PST_E_ARG,
                        "--memory: %" PRIu64 " bytes are too few to reorder %s: expected at least %" PRIu64,
                        s->memory_bytes, s->what, need);
    j->chunk_bytes = largest > READ_BYTES ? largest : READ_BYTES;
    j->chunk = malloc(j->chunk_bytes);
    return j->chunk != NULL ? PST_OK : no_memory(s);
}

static pst_rc open_file(struct job *j)
{
    const struct pst_records_spec *s = j->s;
    const struct bucket *last = &j->bucket[j->buckets - 1];
    j->buffer_bytes = s->memory_bytes / 4 / (uint64_t)j->buckets;
    j->buffer_bytes = j->buffer_bytes > BUFFER_MAX ? BUFFER_MAX : j->buffer_bytes;
    j->buffer_bytes = j->buffer_bytes < BUFFER_MIN ? BUFFER_MIN : j->buffer_bytes;
    pst_build_temp(s->build, "records", j->path);
    j->fd = open(j->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (j->fd < 0)
        return pst_fail_errno("cannot create %s", j->path);
    (void)unlink(j->path); /* nothing else needs it, and a kill leaves nothing */
    for (int64_t k = 0; k < j->buckets; k++)
        if ((j->bucket[k].buffer = malloc(j->buffer_bytes)) == NULL)
            return no_memory(s);
    return pst_file_room_for(s->build->partial, last->at + last->bytes, s->what);
}

static int64_t bucket_of(const struct job *j, int64_t place)
{
    int64_t low = 0, high = j->buckets - 1;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (j->bucket[middle].begin <= place)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static pst_rc flush(struct job *j, struct bucket *b)
{
    const pst_rc rc = pst_file_write_at(j->fd, b->buffer, b->fill, b->at + b->written, j->path);
    b->written += b->fill;
    b->fill = 0;
    return rc;
}

static pst_rc spill(struct job *j, int64_t old, const unsigned char *record, uint64_t bytes)
{
    struct bucket *b = &j->bucket[bucket_of(j, j->s->new_of[old] - j->s->first)];
    pst_rc rc = PST_OK;
    while (bytes > 0 && rc == PST_OK) {
        const uint64_t room = j->buffer_bytes - b->fill, n = bytes < room ? bytes : room;
        memcpy(b->buffer + b->fill, record, n);
        b->fill += n;
        record += n;
        bytes -= n;
        if (b->fill == j->buffer_bytes)
            rc = flush(j, b);
    }
    return rc;
}

/* ---- one pass over the source --------------------------------------------------------------------- */

typedef pst_rc take_fn(struct job *j, void *to, int64_t old, const unsigned char *record, uint64_t bytes);

static pst_rc each(struct job *j, take_fn *take, void *to)
{
    const struct pst_records_spec *s = j->s;
    pst_rc rc = PST_OK;
    for (int64_t old = 0; old < s->n && rc == PST_OK;) {
        int64_t n = 0;
        uint64_t bytes = 0;
        while (old + n < s->n && bytes + bytes_of(s, old + n) <= j->chunk_bytes && n < READ_BYTES)
            bytes += bytes_of(s, old + n++);
        rc = s->read(s->ctx, old, n, j->chunk);
        for (uint64_t at = 0; n > 0 && rc == PST_OK; n--, old++) {
            const uint64_t one = bytes_of(s, old);
            rc = take(j, to, old, j->chunk + at, one);
            at += one;
        }
        if (rc == PST_OK)
            rc = pst_progress_add(s->progress, bytes);
    }
    return rc;
}

static pst_rc take_to_file(struct job *j, void *to, int64_t old, const unsigned char *record, uint64_t bytes)
{
    (void)to;
    return spill(j, old, record, bytes);
}

/* ---- one bucket ----------------------------------------------------------------------------------- */

/* The records of one bucket in memory: those of place begin + i from byte at[i] on. */
struct memory {
    int64_t begin;
    uint64_t *at;
    unsigned char *data;
    int64_t *old; /* numbers in the source, ascending: the order in which the file has them */
};

static void release(struct memory *m)
{
    free(m->at);
    free(m->data);
    free(m->old);
}

static pst_rc make_room(const struct job *j, const struct bucket *b, struct memory *m)
{
    const struct pst_records_spec *s = j->s;
    const int64_t n = b->end - b->begin;
    *m = (struct memory){.begin = b->begin};
    m->at = malloc(((size_t)n + 1) * sizeof *m->at);
    m->data = malloc(b->bytes + 1);
    if (m->at == NULL || m->data == NULL)
        return no_memory(s);
    m->at[0] = 0;
    for (int64_t i = 0; i < n; i++)
        m->at[i + 1] = m->at[i] + bytes_of(s, s->old_of[b->begin + i] - s->first);
    return PST_OK;
}

static pst_rc take_to_memory(struct job *j, void *to, int64_t old, const unsigned char *record,
                             uint64_t bytes)
{
    struct memory *m = to;
    memcpy(m->data + m->at[j->s->new_of[old] - j->s->first - m->begin], record, bytes);
    return PST_OK;
}

static int by_number(const void *left, const void *right)
{
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* The file has the records of a bucket in the order of the source. */
static pst_rc load(struct job *j, const struct bucket *b, struct memory *m)
{
    const struct pst_records_spec *s = j->s;
    const int64_t n = b->end - b->begin;
    m->old = malloc(((size_t)n + 1) * sizeof *m->old);
    if (m->old == NULL)
        return no_memory(s);
    for (int64_t i = 0; i < n; i++)
        m->old[i] = s->old_of[b->begin + i] - s->first;
    qsort(m->old, (size_t)n, sizeof *m->old, by_number);
    uint64_t from = b->at;
    pst_rc rc = PST_OK;
    for (int64_t i = 0; i < n && rc == PST_OK;) {
        int64_t count = 0;
        uint64_t bytes = 0;
        while (i + count < n && bytes + bytes_of(s, m->old[i + count]) <= j->chunk_bytes)
            bytes += bytes_of(s, m->old[i + count++]);
        rc = pst_file_read_at(j->fd, j->chunk, bytes, from, j->path);
        from += bytes;
        for (uint64_t at = 0; count > 0 && rc == PST_OK; count--, i++) {
            const uint64_t one = bytes_of(s, m->old[i]);
            rc = take_to_memory(j, m, m->old[i], j->chunk + at, one);
            at += one;
        }
    }
    return rc;
}

static pst_rc give(const struct job *j, const struct bucket *b, struct memory *m)
{
    const struct pst_records_spec *s = j->s;
    pst_rc rc = PST_OK;
    uint64_t told = 0;
    for (int64_t i = 0; i < b->end - b->begin && rc == PST_OK; i++) {
        rc =
            s->write(s->ctx, s->old_of[b->begin + i] - s->first, m->data + m->at[i], m->at[i + 1] - m->at[i]);
        if (rc == PST_OK && (m->at[i + 1] - told >= READ_BYTES || i + 1 == b->end - b->begin)) {
            rc = pst_progress_add(s->progress, m->at[i + 1] - told);
            told = m->at[i + 1];
        }
    }
    return rc;
}

static pst_rc write_buckets(struct job *j)
{
    pst_rc rc = PST_OK;
    if (j->buckets > 1) {
        rc = open_file(j);
        if (rc == PST_OK)
            rc = each(j, take_to_file, NULL);
        for (int64_t k = 0; k < j->buckets && rc == PST_OK; k++) {
            rc = flush(j, &j->bucket[k]);
            free(j->bucket[k].buffer);
            j->bucket[k].buffer = NULL;
        }
    }
    for (int64_t k = 0; k < j->buckets && rc == PST_OK; k++) {
        struct memory m;
        rc = make_room(j, &j->bucket[k], &m);
        if (rc == PST_OK)
            rc = j->buckets > 1 ? load(j, &j->bucket[k], &m) : each(j, take_to_memory, &m);
        if (rc == PST_OK)
            rc = give(j, &j->bucket[k], &m);
        release(&m);
    }
    return rc;
}

pst_rc pst_records_write(const struct pst_records_spec *s)
{
    struct job j = {.s = s, .fd = -1};
    pst_rc rc = cut(&j);
    if (rc == PST_OK) {
        const struct bucket *last = &j.bucket[j.buckets - 1];
        pst_progress_begin(s->progress, s->what, 2 * (last->at + last->bytes), true);
        rc = write_buckets(&j);
    }
    if (rc == PST_OK)
        pst_progress_end(s->progress);
    for (int64_t k = 0; k < j.buckets && j.bucket != NULL; k++)
        free(j.bucket[k].buffer);
    if (j.fd >= 0)
        (void)close(j.fd);
    free(j.bucket);
    free(j.chunk);
    return rc;
}

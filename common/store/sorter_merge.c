#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../error.h"
#include "sorter_parts.h"

#define WRITE_STEP                                                                                           \
    (8u << 20) /* written, then handed to the disk, so that a small cgroup is never full of it */
#define CHUNK_BYTES_MAX (4u << 20) /* of one input of a merge: longer reads are no faster */
#define OUT_BYTES (1u << 20)       /* of a merge between runs */

pst_rc pst_spill_write(struct spill *s, off_t at, const void *keys, size_t bytes)
{
    const char *from = keys;
    off_t before = -1;
    for (size_t done = 0; done < bytes;) {
        size_t step = bytes - done < WRITE_STEP ? bytes - done : WRITE_STEP;
        for (size_t k = 0; k < step;) {
            ssize_t n = pwrite(s->fd, from + done + k, step - k, at + (off_t)(done + k));
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                return pst_fail_errno("cannot write %zu bytes of sorted edges aside", bytes);
            k += (size_t)n;
        }
        off_t here = at + (off_t)done;
        /* Hints: a file system that has not them works on without. */
        (void)sync_file_range(s->fd, here, (off_t)step, SYNC_FILE_RANGE_WRITE);
        if (before >= 0) {
            (void)sync_file_range(s->fd, before, WRITE_STEP,
                                  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                                      SYNC_FILE_RANGE_WAIT_AFTER);
            (void)posix_fadvise(s->fd, before, WRITE_STEP, POSIX_FADV_DONTNEED);
        }
        before = here;
        done += step;
    }
    return PST_OK;
}

pst_rc pst_spill_add(struct spill *s, struct run run)
{
    if (s->runs == RUNS_MAX)
        return pst_fail(PST_E_LIMIT, "more than %d sorted runs: give --memory more", RUNS_MAX);
    if (s->runs == s->room) {
        size_t room = s->room > 0 ? 2 * s->room : 64;
        struct run *more = realloc(s->run, room * sizeof *more);
        if (more == NULL)
            return pst_fail(PST_E_NOMEM, "no memory for a table of %zu runs", room);
        s->run = more;
        s->room = room;
    }
    s->run[s->runs++] = run;
    return PST_OK;
}

static pst_rc read_all(int fd, void *out, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)out + done, bytes - done, at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pst_fail_errno("cannot read sorted edges back");
        if (n == 0)
            return pst_fail(PST_E_IO, "sorted edges end early");
        done += (size_t)n;
    }
    return PST_OK;
}

/* The next chunk of an input; at == end after it: there is no more. */
static pst_rc refill(struct merge *m, struct cursor *c)
{
    uint64_t left = c->run.keys - c->taken;
    size_t n = left < m->chunk ? (size_t)left : m->chunk;
    size_t item = key_bytes(c->run.wide);
    bool widen = m->wide && !c->run.wide;
    c->at = c->end = 0;
    if (n == 0)
        return PST_OK;
    /* Narrow keys go to the upper half, and are made wide from there without running over themselves. */
    uint64_t *from = (uint64_t *)c->keys + (widen ? m->chunk : 0);
    off_t at = c->run.at + (off_t)(c->taken * item);
    pst_rc rc = read_all(m->spill->fd, from, n * item, at);
    if (rc != PST_OK)
        return rc;
    (void)posix_fadvise(m->spill->fd, at, (off_t)(n * item), POSIX_FADV_DONTNEED);
    if (left > n)
        (void)posix_fadvise(m->spill->fd, at + (off_t)(n * item), (off_t)(m->chunk * item),
                            POSIX_FADV_WILLNEED);
    for (size_t i = 0; widen && i < n; i++) {
        uint64_t key = from[i];
        ((wide_key *)c->keys)[i] = (wide_key)(key >> 32) << 80 | (wide_key)(key & UINT32_MAX) << 32;
    }
    c->taken += n;
    c->end = n;
    return PST_OK;
}

#define KEY uint64_t
#define FN(name) name##_narrow
#include "sorter_keys.h"
#undef KEY
#undef FN
#define KEY wide_key
#define FN(name) name##_wide
#include "sorter_keys.h"
#undef KEY
#undef FN

void *pst_sort_keys(void *a, void *b, size_t *n, bool wide, bool dedupe)
{
    void *out = wide ? (void *)radix_wide(a, b, *n) : (void *)radix_narrow(a, b, *n);
    if (dedupe)
        *n = wide ? unique_wide(out, *n) : unique_narrow(out, *n);
    return out;
}

pst_rc pst_merge_init(struct merge *m, const struct spill *s, size_t first, unsigned inputs, bool wide,
                      bool dedupe, uint64_t memory_bytes)
{
    *m = (struct merge){.spill = s, .inputs = inputs, .width = 1, .wide = wide, .dedupe = dedupe};
    while (m->width < inputs)
        m->width *= 2;
    size_t item = key_bytes(wide), bytes = (size_t)(memory_bytes / (inputs > 0 ? inputs : 1));
    if (bytes > CHUNK_BYTES_MAX)
        bytes = CHUNK_BYTES_MAX;
    m->chunk = bytes / PST_PAGE * PST_PAGE / item;
    assert(m->chunk > 0);
    m->cursor = calloc(m->width, sizeof *m->cursor);
    m->loser = calloc(m->width, sizeof *m->loser);
    m->head = calloc(m->width, sizeof(wide_key));
    m->memory = malloc((inputs > 0 ? inputs : 1) * m->chunk * item);
    if (m->cursor == NULL || m->loser == NULL || m->head == NULL || m->memory == NULL)
        return pst_fail(PST_E_NOMEM, "no memory to merge %u runs", inputs);
    for (unsigned i = 0; i < inputs; i++)
        m->cursor[i] =
            (struct cursor){.run = s->run[first + i], .keys = (char *)m->memory + i * m->chunk * item};
    return wide ? merge_start_wide(m) : merge_start_narrow(m);
}

pst_rc pst_merge_fill(struct merge *m, void *out, size_t room, size_t *got)
{
    return m->wide ? merge_fill_wide(m, out, room, got) : merge_fill_narrow(m, out, room, got);
}

void pst_merge_release(struct merge *m)
{
    free(m->cursor);
    free(m->loser);
    free(m->head);
    free(m->memory);
    *m = (struct merge){.inputs = 0};
}

/* The first runs become one at the end of the file. */
static pst_rc merge_some(struct spill *s, unsigned inputs, bool dedupe, uint64_t memory_bytes)
{
    bool wide = false;
    for (unsigned i = 0; i < inputs; i++)
        wide |= s->run[i].wide;
    struct run out = {.at = s->end, .wide = wide};
    struct merge m;
    size_t item = key_bytes(wide), n = 0;
    void *block = malloc(OUT_BYTES);
    pst_rc rc = pst_merge_init(&m, s, 0, inputs, wide, dedupe, memory_bytes);
    if (rc == PST_OK && block == NULL)
        rc = pst_fail(PST_E_NOMEM, "no memory to merge runs");
    while (rc == PST_OK && (rc = pst_merge_fill(&m, block, OUT_BYTES / item, &n)) == PST_OK && n > 0) {
        rc = pst_spill_write(s, s->end, block, n * item);
        s->end += (off_t)(n * item);
        out.keys += n;
    }
    s->end = (off_t)pst_align_up((uint64_t)s->end, PST_PAGE);
    for (unsigned i = 0; i < inputs && rc == PST_OK; i++) /* gives its space back where the file system can */
        (void)fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, s->run[i].at,
                        (off_t)pst_align_up(s->run[i].keys * key_bytes(s->run[i].wide), PST_PAGE));
    memmove(s->run, s->run + inputs, (s->runs - inputs) * sizeof *s->run);
    s->runs -= inputs;
    if (rc == PST_OK)
        rc = pst_spill_add(s, out);
    pst_merge_release(&m);
    free(block);
    return rc;
}

pst_rc pst_spill_shrink(struct spill *s, size_t fan_in, bool dedupe, uint64_t memory_bytes)
{
    assert(fan_in >= 2);
    while (s->runs > fan_in) {
        size_t inputs = s->runs - fan_in + 1; /* no more than it takes */
        pst_rc rc = merge_some(s, (unsigned)(inputs < fan_in ? inputs : fan_in), dedupe, memory_bytes);
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

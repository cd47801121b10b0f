/* log_streams.c: writes and reads many streams of bytes in one file, by blocks with checksums. */
#include "common/store/names/log_streams.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/util/file.h"

#define PACK_HEAD 3 /* how many numbers (2 bytes), and bytes of each */

static const char *path_of(const struct pst_log_streams *s)
{
    return s->path[0] != '\0' ? s->path : "the temporary file of names";
}

static pst_rc damaged(const struct pst_log_streams *s, uint64_t at)
{
    return pst_fail(PST_E_FORMAT,
                    "%s: block at byte %" PRIu64 " differs from what was written: the disk may be faulty",
                    path_of(s), at);
}

static uint32_t payload(const struct pst_log_streams *s)
{
    return s->block_bytes - PST_LOG_STREAM_CHECK;
}

static uint64_t check_of(const void *data, size_t bytes, int stream, uint64_t block)
{
    return XXH3_64bits_withSeed(data, bytes, block << 16 | (uint64_t)stream);
}

static uint64_t place_of(const struct pst_log_streams *s, const struct pst_log_stream *st, uint64_t block)
{
    return (st->extent[block / PST_LOG_STREAM_EXTENT] * PST_LOG_STREAM_EXTENT +
            block % PST_LOG_STREAM_EXTENT) *
           s->block_bytes;
}

static uint64_t bytes_of(const struct pst_log_streams *s, int i)
{
    return s->stream[i].blocks * payload(s) + s->stream[i].fill;
}

/* ---- writing ---- */

static pst_rc open_file(struct pst_log_streams *s, const char *dir, const char *name, int flags)
{
    if (name == NULL && (s->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) >= 0)
        return PST_OK;
    (void)snprintf(s->path, sizeof s->path, "%.3900s/temp-edges.%.100s", dir, name != NULL ? name : "aside");
    s->fd = open(s->path, O_RDWR | O_CLOEXEC | flags, 0600);
    if (s->fd < 0)
        return pst_fail_errno("cannot open %s, a temporary file for names", s->path);
    if (name == NULL && unlink(s->path) != 0)
        return pst_fail_errno("cannot remove %s", s->path);
    if (name == NULL)
        s->path[0] = '\0';
    return PST_OK;
}

pst_rc pst_log_streams_make(struct pst_log_streams *s, const char *dir, const char *name, int n,
                            uint32_t block_bytes)
{
    assert(block_bytes >= PST_LOG_STREAM_BLOCK_MIN && n > 0);
    *s = (struct pst_log_streams){.fd = -1, .n = n, .block_bytes = block_bytes};
    s->stream = calloc((size_t)n, sizeof *s->stream);
    if (s->stream == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %d streams", n);
    return open_file(s, dir, name, O_CREAT | O_TRUNC);
}

static pst_rc write_block(struct pst_log_streams *s, int i)
{
    struct pst_log_stream *st = &s->stream[i];
    const uint64_t check = check_of(st->block + PST_LOG_STREAM_CHECK, st->fill, i, st->blocks);
    if (st->blocks == st->extents * PST_LOG_STREAM_EXTENT) {
        if ((st->extents & (st->extents - 1)) == 0) { /* a power of two, or 0: the table is full */
            uint64_t *more =
                realloc(st->extent, (st->extents > 0 ? 2 * st->extents : 1) * sizeof *st->extent);
            if (more == NULL)
                return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a table of %" PRIu64 " extents",
                                st->extents);
            st->extent = more;
        }
        st->extent[st->extents++] = __atomic_fetch_add(&s->extents, 1, __ATOMIC_RELAXED);
    }
    memcpy(st->block, &check, sizeof check);
    const uint64_t at = place_of(s, st, st->blocks), bytes = PST_LOG_STREAM_CHECK + st->fill;
    return pst_file_write_at(s->fd, st->block, bytes, at, path_of(s));
}

/* A full extent goes to the disk: a hint, so that a small cgroup is never full of what is not there. */
static void hand_over(const struct pst_log_streams *s, const struct pst_log_stream *st)
{
    const uint64_t bytes = (uint64_t)PST_LOG_STREAM_EXTENT * s->block_bytes;
    if (st->blocks % PST_LOG_STREAM_EXTENT == 0)
        (void)sync_file_range(s->fd, (off_t)(st->extent[st->blocks / PST_LOG_STREAM_EXTENT - 1] * bytes),
                              (off_t)bytes, SYNC_FILE_RANGE_WRITE);
}

pst_rc pst_log_stream_put_more(struct pst_log_streams *s, int i, const void *data, size_t bytes)
{
    struct pst_log_stream *st = &s->stream[i];
    const unsigned char *from = data;
    assert(st->block != NULL || st->fill == 0); /* it was not ended */
    if (st->block == NULL && (st->block = malloc(s->block_bytes)) == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a block of %u bytes", s->block_bytes);
    while (bytes > 0) {
        const size_t room = payload(s) - st->fill, take = bytes < room ? bytes : room;
        memcpy(st->block + PST_LOG_STREAM_CHECK + st->fill, from, take);
        st->fill += (uint32_t)take;
        from += take;
        bytes -= take;
        if (st->fill < payload(s))
            continue;
        pst_rc rc = write_block(s, i);
        if (rc != PST_OK)
            return rc;
        st->blocks++;
        st->fill = 0;
        hand_over(s, st);
    }
    return PST_OK;
}

pst_rc pst_log_stream_end(struct pst_log_streams *s, int i)
{
    struct pst_log_stream *st = &s->stream[i];
    pst_rc rc = st->block != NULL && st->fill > 0 ? write_block(s, i) : PST_OK;
    free(st->block);
    st->block = NULL;
    return rc;
}

pst_rc pst_log_streams_end(struct pst_log_streams *s)
{
    pst_rc rc = PST_OK;
    for (int i = 0; rc == PST_OK && i < s->n; i++)
        rc = pst_log_stream_end(s, i);
    return rc;
}

void pst_log_stream_forget(struct pst_log_streams *s, int i)
{
    free(s->stream[i].block);
    free(s->stream[i].extent);
    s->stream[i] = (struct pst_log_stream){.blocks = 0};
}

/* ---- to be gone on with ---- */

pst_rc pst_log_streams_flush(struct pst_log_streams *s)
{
    pst_rc rc = PST_OK;
    for (int i = 0; rc == PST_OK && i < s->n; i++)
        if (s->stream[i].block != NULL && s->stream[i].fill > 0)
            rc = write_block(s, i);
    return rc;
}

pst_rc pst_log_streams_sync(const struct pst_log_streams *s)
{
    return fsync(s->fd) == 0 ? PST_OK : pst_fail_errno("cannot sync %s", s->path);
}

json_t *pst_log_streams_state(const struct pst_log_streams *s, bool (*keep)(const void *ctx, int i),
                              const void *ctx)
{
    json_t *all = json_array();
    for (int i = 0; i < s->n; i++) {
        json_t *one = json_array();
        const struct pst_log_stream *st = &s->stream[i];
        if (keep == NULL || keep(ctx, i)) {
            /* The last block is written again when it has more: what it has now is checked by this. */
            (void)json_array_append_new(one, json_integer((json_int_t)bytes_of(s, i)));
            (void)json_array_append_new(
                one, st->block != NULL ? json_integer((json_int_t)check_of(st->block + PST_LOG_STREAM_CHECK,
                                                                           st->fill, i, st->blocks))
                                       : json_null());
            for (uint64_t k = 0; k < st->extents; k++)
                (void)json_array_append_new(one, json_integer((json_int_t)st->extent[k]));
        }
        (void)json_array_append_new(all, one);
    }
    return json_pack("{s:I, s:I, s:o}", "block", (json_int_t)s->block_bytes, "extents",
                     (json_int_t)__atomic_load_n(&s->extents, __ATOMIC_RELAXED), "streams", all);
}

/* The block that more is put to. */
static pst_rc load_block(struct pst_log_streams *s, int i, uint64_t check)
{
    struct pst_log_stream *st = &s->stream[i];
    if ((st->block = malloc(s->block_bytes)) == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a block of %u bytes", s->block_bytes);
    if (st->fill == 0)
        return PST_OK;
    unsigned char *data = st->block + PST_LOG_STREAM_CHECK;
    const uint64_t at = place_of(s, st, st->blocks) + PST_LOG_STREAM_CHECK;
    pst_rc rc = pst_file_read_at(s->fd, data, st->fill, at, s->path);
    return rc != PST_OK || check == check_of(data, st->fill, i, st->blocks) ? rc : damaged(s, at);
}

static pst_rc load_stream(struct pst_log_streams *s, int i, const json_t *one)
{
    struct pst_log_stream *st = &s->stream[i];
    const uint64_t bytes = (uint64_t)json_integer_value(json_array_get(one, 0));
    const json_t *check = json_array_get(one, 1);
    uint64_t room = 1;
    if (json_array_size(one) < 2)
        return PST_OK;
    st->blocks = bytes / payload(s);
    st->fill = (uint32_t)(bytes % payload(s));
    st->extents = json_array_size(one) - 2;
    if (st->blocks + (st->fill > 0) > st->extents * PST_LOG_STREAM_EXTENT)
        return pst_fail(PST_E_FORMAT,
                        "%s: this file of the interrupted import is damaged: import again without --resume",
                        s->path);
    while (room < st->extents)
        room *= 2;
    st->extent = calloc(room, sizeof *st->extent);
    if (st->extent == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a table of extents");
    for (uint64_t k = 0; k < st->extents; k++)
        st->extent[k] = (uint64_t)json_integer_value(json_array_get(one, k + 2));
    return json_is_integer(check) ? load_block(s, i, (uint64_t)json_integer_value(check)) : PST_OK;
}

pst_rc pst_log_streams_load(struct pst_log_streams *s, const char *dir, const char *name, const json_t *state)
{
    const json_t *all = json_object_get(state, "streams");
    *s = (struct pst_log_streams){.fd = -1, .n = (int)json_array_size(all)};
    s->block_bytes = (uint32_t)json_integer_value(json_object_get(state, "block"));
    s->extents = (uint64_t)json_integer_value(json_object_get(state, "extents"));
    s->stream = calloc((size_t)s->n + 1, sizeof *s->stream);
    if (s->stream == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %d streams", s->n);
    pst_rc rc = open_file(s, dir, name, 0);
    if (rc == PST_OK && (s->n == 0 || s->block_bytes < PST_LOG_STREAM_BLOCK_MIN))
        rc = pst_fail(PST_E_FORMAT,
                      "%s: this file of the interrupted import is damaged: import again without --resume",
                      s->path);
    for (int i = 0; rc == PST_OK && i < s->n; i++)
        rc = load_stream(s, i, json_array_get(all, (size_t)i));
    return rc;
}

void pst_log_streams_close(struct pst_log_streams *s, bool keep)
{
    if (s->stream == NULL)
        return;
    for (int i = 0; i < s->n; i++)
        pst_log_stream_forget(s, i);
    free(s->stream);
    s->stream = NULL;
    if (s->fd >= 0)
        (void)close(s->fd);
    if (s->fd >= 0 && !keep && s->path[0] != '\0')
        (void)unlink(s->path);
    s->fd = -1;
}

/* ---- reading ---- */

void pst_log_stream_read(struct pst_log_stream_reader *r, const struct pst_log_streams *s, int i)
{
    *r = (struct pst_log_stream_reader){.s = s, .stream = i, .left = bytes_of(s, i)};
}

void pst_log_stream_reader_release(struct pst_log_stream_reader *r)
{
    free(r->buffer);
    *r = (struct pst_log_stream_reader){.s = NULL};
}

/* The next block, behind what is ahead already. */
static pst_rc read_block(struct pst_log_stream_reader *r)
{
    const struct pst_log_streams *s = r->s;
    const struct pst_log_stream *st = &s->stream[r->stream];
    const size_t bytes = r->left < payload(s) ? (size_t)r->left : payload(s);
    const uint64_t at = place_of(s, st, r->block);
    const char *path = path_of(s);
    uint64_t check = 0;
    if (r->end + bytes + 8 > r->room) {
        unsigned char *more = realloc(r->buffer, r->end + payload(s) + 8);
        if (more == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot read %s", path);
        r->buffer = more;
        r->room = r->end + payload(s) + 8;
    }
    struct iovec piece[2] = {{&check, sizeof check}, {r->buffer + r->end, bytes}};
    pst_rc rc = pst_file_readv_at(s->fd, piece, 2, at, path);
    if (rc != PST_OK)
        return rc;
    if (check != check_of(r->buffer + r->end, bytes, r->stream, r->block))
        return damaged(s, at);
    (void)posix_fadvise(s->fd, (off_t)at, (off_t)s->block_bytes, POSIX_FADV_DONTNEED);
    r->end += bytes;
    r->left -= bytes;
    r->block++;
    if (r->left > 0)
        (void)posix_fadvise(s->fd, (off_t)place_of(s, st, r->block), (off_t)s->block_bytes,
                            POSIX_FADV_WILLNEED);
    return PST_OK;
}

pst_rc pst_log_stream_read_more(struct pst_log_stream_reader *r, size_t need)
{
    pst_rc rc = PST_OK;
    if (r->end > r->at)
        memmove(r->buffer, r->buffer + r->at, r->end - r->at);
    r->end -= r->at;
    r->at = 0;
    while (rc == PST_OK && r->end < need && r->left > 0)
        rc = read_block(r);
    return rc;
}

/* ---- numbers ---- */

pst_rc pst_ids_flush(struct pst_ids_writer *w)
{
    unsigned char pack[PACK_HEAD + 8 * PST_NAMES_PACK_IDS + 8];
    const unsigned item = w->any == 0 ? 1 : (71 - (unsigned)__builtin_clzll(w->any)) / 8;
    const uint16_t n = (uint16_t)w->n;
    if (n == 0)
        return PST_OK;
    memcpy(pack, &n, sizeof n);
    pack[2] = (unsigned char)item;
    for (unsigned i = 0; i < n; i++)
        memcpy(pack + PACK_HEAD + i * item, &w->id[i],
               8); /* what is past the item is written over by the next */
    w->n = 0;
    w->any = 0;
    return pst_log_stream_put(w->s, w->stream, pack, PACK_HEAD + (size_t)n * item);
}

pst_rc pst_ids_more(struct pst_ids_reader *r)
{
    uint16_t n = 0;
    r->n = r->at = 0;
    pst_rc rc = pst_log_stream_ahead(&r->r, PACK_HEAD + 8 * PST_NAMES_PACK_IDS);
    if (rc != PST_OK)
        return rc;
    const size_t left = r->r.end - r->r.at;
    const unsigned char *p = r->r.buffer + r->r.at;
    if (left >= PACK_HEAD)
        memcpy(&n, p, sizeof n);
    const size_t item = n > 0 ? p[2] : 0;
    if (n == 0 || n > PST_NAMES_PACK_IDS || item == 0 || item > 8 || PACK_HEAD + n * item > left)
        return pst_fail(PST_E_FORMAT, "a temporary file of vertex numbers ends too early: the disk may be "
                                      "faulty; import again without --resume");
    const uint64_t mask = item == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * item) - 1;
    for (unsigned i = 0; i < n; i++) {
        memcpy(&r->id[i], p + PACK_HEAD + i * item, 8); /* the buffer has 8 bytes more */
        r->id[i] &= mask;
    }
    r->r.at += PACK_HEAD + n * item;
    r->n = n;
    return PST_OK;
}

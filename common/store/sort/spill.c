/* spill.c: the temporary file of buckets: packs, writes and reads keys, with checksums. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/store/sort/sorter_impl.h"

#define PREFETCH_EXTENTS 4 /* of a bucket: what comes after is read ahead by its reader */

pst_rc pst_sorter_spill_make(struct spill *s, const char *dir, bool named)
{
    s->path[0] = '\0';
    if (!named && (s->fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) >= 0)
        return PST_OK;
    (void)snprintf(s->path, sizeof s->path, "%.4000s/" PST_SORTER_SPILL, dir);
    s->fd = open(s->path, O_RDWR | O_CREAT | (s->end == 0 ? O_TRUNC : 0) | O_CLOEXEC, 0600);
    if (s->fd < 0)
        return pst_fail_errno("cannot create a temporary file for sorting in %s", dir);
    if (!named && unlink(s->path) != 0)
        return pst_fail_errno("cannot remove %s", s->path);
    return PST_OK;
}

pst_rc pst_sorter_spill_write(const struct spill *s, const void *from, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(s->fd, (const char *)from + done, bytes - done, at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return pst_fail_errno("cannot write %zu bytes of edges to the temporary file for sorting", bytes);
        done += (size_t)n;
    }
    /* A hint, so that a small cgroup is never full of what is not on disk. */
    (void)sync_file_range(s->fd, at, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
    return PST_OK;
}

static pst_rc read_all(int fd, void *out, size_t bytes, off_t at)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)out + done, bytes - done, at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pst_fail_errno("cannot read the temporary file of edges");
        if (n == 0)
            return pst_fail(PST_E_IO,
                            "the temporary file of edges ends too early, at byte %jd: the disk may be "
                            "faulty; import again",
                            (intmax_t)at + (intmax_t)done);
        done += (size_t)n;
    }
    return PST_OK;
}

/* ---- packs ---- */

static unsigned bits_of(uint64_t range)
{
    return range == 0 ? 0 : 64 - (unsigned)__builtin_clzll(range);
}

struct seen {
    uint64_t min, max, low_min, low_max;
};

static struct seen look_at(const uint64_t *keys, size_t n)
{
    struct seen s = {UINT64_MAX, 0, UINT64_MAX, 0};
    for (size_t i = 0; i < n; i++) {
        uint64_t key = keys[i], low = key & UINT32_MAX;
        s.min = key < s.min ? key : s.min;
        s.max = key > s.max ? key : s.max;
        s.low_min = low < s.low_min ? low : s.low_min;
        s.low_max = low > s.low_max ? low : s.low_max;
    }
    return s;
}

static size_t pack_narrow(unsigned char *out, const uint64_t *keys, size_t n, const struct seen *s)
{
    uint64_t high = s->min >> 32;
    unsigned low_bits = bits_of(s->low_max - s->low_min), high_bits = bits_of((s->max >> 32) - high);
    unsigned item = (low_bits + high_bits + 7) / 8;
    struct pack head = {.keys = (uint16_t)n,
                        .item_bytes = (uint8_t)item,
                        .low_bits = low_bits,
                        .high = (uint32_t)high,
                        .low = (uint32_t)s->low_min};
    unsigned char *to = out + sizeof head;
    for (size_t i = 0; i < n; i++) {
        uint64_t v = ((keys[i] >> 32) - high) << low_bits | ((keys[i] & UINT32_MAX) - s->low_min);
        memcpy(to, &v, sizeof v); /* what is past the item is written over by the next */
        to += item;
    }
    memcpy(out, &head, sizeof head);
    return (size_t)(to - out);
}

static size_t pack_wide(unsigned char *out, const void *keys, size_t n)
{
    struct pack head = {.keys = (uint16_t)n, .wide = 1, .item_bytes = sizeof(wide_key)};
    memcpy(out, &head, sizeof head);
    memcpy(out + sizeof head, keys, n * sizeof(wide_key));
    return sizeof head + n * sizeof(wide_key);
}

static uint32_t check_of(const unsigned char *pack, size_t bytes)
{
    return (uint32_t)XXH3_64bits(pack + sizeof(uint32_t), bytes - sizeof(uint32_t));
}

/* ---- a bucket's stream ---- */

/* Where in the file byte `at` of the stream is. */
static off_t place_of(const struct spill *s, const struct bucket *b, uint64_t at)
{
    return b->extent[at / s->extent_bytes] + (off_t)(at % s->extent_bytes);
}

static pst_rc add_extent(struct spill *s, struct bucket *b)
{
    if ((b->extents & (b->extents - 1)) == 0) { /* room is the power of two above */
        size_t room = b->extents == 0 ? 1 : 2 * b->extents;
        off_t *more = realloc(b->extent, room * sizeof *more);
        if (more == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a table of %zu extents", room);
        b->extent = more;
    }
    b->extent[b->extents++] = __atomic_fetch_add(&s->end, (off_t)s->extent_bytes, __ATOMIC_RELAXED);
    return PST_OK;
}

static pst_rc append(struct spill *s, struct bucket *b, const unsigned char *from, size_t bytes)
{
    while (bytes > 0) {
        if (b->bytes == b->extents * s->extent_bytes) {
            pst_rc rc = add_extent(s, b);
            if (rc != PST_OK)
                return rc;
        }
        size_t n = s->block_bytes - b->fill < bytes ? s->block_bytes - b->fill : bytes;
        memcpy(b->block + b->fill, from, n);
        b->fill += n;
        b->bytes += n;
        from += n;
        bytes -= n;
        if (b->fill < s->block_bytes)
            continue;
        b->fill = 0;
        pst_rc rc =
            pst_sorter_spill_write(s, b->block, s->block_bytes, place_of(s, b, b->bytes - s->block_bytes));
        if (rc != PST_OK)
            return rc;
    }
    return PST_OK;
}

/* A pack is in one extent: where it does not fit, zeros end the extent. */
static pst_rc append_pack(struct spill *s, struct bucket *b, const unsigned char *pack, size_t bytes)
{
    static const unsigned char zeros[4096];
    size_t left = (size_t)(b->extents * s->extent_bytes - b->bytes);
    pst_rc rc = PST_OK;
    while (rc == PST_OK && left < bytes && left > 0) {
        size_t n = left < sizeof zeros ? left : sizeof zeros;
        rc = append(s, b, zeros, n);
        left -= n;
    }
    return rc == PST_OK ? append(s, b, pack, bytes) : rc;
}

static void note_range(struct bucket *b, wide_key min, wide_key max, uint64_t low_max)
{
    b->min = b->keys == 0 || min < b->min ? min : b->min;
    b->max = b->keys == 0 || max > b->max ? max : b->max;
    b->low_max = low_max > b->low_max ? low_max : b->low_max;
}

pst_rc pst_sorter_bucket_add(struct spill *s, struct bucket *b, const void *keys, size_t n, bool wide)
{
    assert(n > 0 && n <= PACK_KEYS_MAX);
    unsigned char pack[PACK_BYTES_MAX];
    const wide_key *w = keys;
    struct seen seen = {0};
    wide_key min = 0, max = 0;
    size_t bytes;
    if (wide) {
        bytes = pack_wide(pack, keys, n);
        min = max = w[0];
        for (size_t i = 1; i < n; i++) {
            min = w[i] < min ? w[i] : min;
            max = w[i] > max ? w[i] : max;
        }
    } else {
        seen = look_at(keys, n);
        bytes = pack_narrow(pack, keys, n, &seen);
        min = widen(seen.min);
        max = widen(seen.max);
    }
    uint32_t check = check_of(pack, bytes);
    memcpy(pack, &check, sizeof check);
    (void)pthread_mutex_lock(&b->lock);
    note_range(b, min, max, seen.low_max);
    pst_rc rc = append_pack(s, b, pack, bytes);
    b->keys += n;
    (void)pthread_mutex_unlock(&b->lock);
    return rc;
}

pst_rc pst_sorter_bucket_flush(const struct spill *s, const struct bucket *b)
{
    return b->fill == 0 ? PST_OK
                        : pst_sorter_spill_write(s, b->block, b->fill, place_of(s, b, b->bytes - b->fill));
}

pst_rc pst_sorter_bucket_reload(const struct spill *s, struct bucket *b)
{
    b->fill = (size_t)(b->bytes % s->block_bytes);
    return b->fill == 0 ? PST_OK : read_all(s->fd, b->block, b->fill, place_of(s, b, b->bytes - b->fill));
}

void pst_sorter_bucket_release(struct bucket *b)
{
    free(b->extent);
    (void)pthread_mutex_destroy(&b->lock);
}

/* ---- reading ---- */

static void prefetch(const struct spill *s, const struct bucket *b, size_t extent)
{
    if (extent < b->extents)
        (void)posix_fadvise(s->fd, b->extent[extent], (off_t)s->extent_bytes, POSIX_FADV_WILLNEED);
}

void pst_sorter_bucket_prefetch(const struct spill *s, const struct bucket *b)
{
    for (size_t i = 0; i < PREFETCH_EXTENTS; i++)
        prefetch(s, b, i);
}

static pst_rc next_extent(struct bucket_reader *r)
{
    const struct spill *s = r->spill;
    uint64_t from = r->extent * s->extent_bytes, left = r->bucket->bytes - from;
    r->at = 0;
    r->end = left < s->extent_bytes ? (size_t)left : s->extent_bytes;
    off_t at = r->bucket->extent[r->extent];
    prefetch(s, r->bucket, r->extent + PREFETCH_EXTENTS);
    pst_rc rc = read_all(s->fd, r->buffer, r->end, at);
    (void)posix_fadvise(s->fd, at, (off_t)s->extent_bytes, POSIX_FADV_DONTNEED);
    r->extent++;
    return rc;
}

static pst_rc damaged(const struct bucket_reader *r)
{
    return pst_fail(
        PST_E_IO,
        "the temporary file of edges differs from what was written, near byte %jd: the disk may be faulty",
        (intmax_t)(r->bucket->extent[r->extent - 1] + (off_t)r->at));
}

static void unpack_narrow(const struct pack *h, const unsigned char *from, void *out, bool wide_out,
                          uint64_t base, unsigned low_bits)
{
    uint64_t mask = h->item_bytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * h->item_bytes) - 1;
    uint64_t low_mask = (UINT64_C(1) << h->low_bits) - 1, above = h->high - base;
    for (size_t i = 0; i < h->keys; i++) {
        uint64_t v;
        memcpy(&v, from + i * h->item_bytes, sizeof v);
        v &= mask;
        uint64_t high = (v >> h->low_bits) + above, low = (v & low_mask) + h->low;
        if (wide_out)
            ((wide_key *)out)[i] = (wide_key)high << 80 | (wide_key)low << 32;
        else
            ((uint64_t *)out)[i] = high << low_bits | low;
    }
}

pst_rc pst_sorter_bucket_next(struct bucket_reader *r, void *out, bool wide_out, uint64_t base,
                              unsigned low_bits, size_t *n)
{
    struct pack head = {.keys = 0};
    *n = 0;
    for (;;) {
        head.keys = 0;
        if (r->end - r->at >= sizeof head)
            memcpy(&head, r->buffer + r->at, sizeof head);
        if (head.keys > 0)
            break;
        if (r->extent == r->bucket->extents)
            return PST_OK;
        pst_rc rc = next_extent(r);
        if (rc != PST_OK)
            return rc;
    }
    size_t item = head.item_bytes, bytes = sizeof head + head.keys * item;
    const unsigned char *from = r->buffer + r->at;
    bool sound = head.keys <= PACK_KEYS_MAX && bytes <= r->end - r->at && head.low_bits <= 32 &&
                 (head.wide ? wide_out && item == sizeof(wide_key) : item <= 8);
    if (!sound || check_of(from, bytes) != head.check)
        return damaged(r);
    if (head.wide)
        memcpy(out, from + sizeof head, head.keys * sizeof(wide_key));
    else
        unpack_narrow(&head, from + sizeof head, out, wide_out, wide_out ? 0 : base, low_bits);
    r->at += bytes;
    *n = head.keys;
    return PST_OK;
}

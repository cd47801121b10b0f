/* index.c: writes and reads the file that says where each bucket lies. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/util/file.h"
#include "common/store/sort/sorter_impl.h"

#define INDEX_BYTES_MAX (1u << 30) /* of an index of 10^14 edges */

/* The file: a head, each bucket and its extents, the splitters, and the XXH3 of all that. It is read by the
 * program that wrote it, on the same machine: numbers are as they are in memory. */
struct head {
    char magic[8];
    uint32_t finished, wide;
    uint64_t buckets, pack_keys, keys, block_bytes, end;
};
struct part {
    uint64_t keys, bytes, low_max, extents;
    wide_key min, max;
};

static const char magic[8] = "pstsort2";

/* ---- writing ---- */

static void write_parts(FILE *f, const struct index_part *of)
{
    for (size_t i = 0; i < of->buckets; i++) {
        const struct bucket *b = of->bucket[i];
        struct part part = {.keys = b->keys,
                            .bytes = b->bytes,
                            .low_max = b->low_max,
                            .extents = b->extents,
                            .min = b->min,
                            .max = b->max};
        (void)fwrite(&part, sizeof part, 1, f);
        if (b->extents > 0) /* a bucket without keys has no array */
            (void)fwrite(b->extent, sizeof *b->extent, b->extents, f);
    }
    if (of->splitters == NULL)
        return;
    (void)fwrite(of->splitters->narrow, sizeof(uint64_t), of->buckets - 1, f);
    (void)fwrite(of->splitters->wide, sizeof(wide_key), of->buckets - 1, f);
}

pst_rc pst_sorter_index_write(const struct spill *s, const struct index_part *of, const char *dir,
                              const char *name)
{
    struct head head = {.finished = of->finished,
                        .wide = of->wide,
                        .buckets = of->buckets,
                        .pack_keys = of->pack_keys,
                        .keys = of->keys,
                        .block_bytes = s->block_bytes,
                        .end = (uint64_t)s->end};
    memcpy(head.magic, magic, sizeof magic);
    if (fdatasync(s->fd) != 0)
        return pst_fail_errno("cannot sync the temporary file of edges");
    char path[PST_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = open_memstream(&text, &bytes);
    if (f == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the table of edge partitions");
    (void)fwrite(&head, sizeof head, 1, f);
    write_parts(f, of);
    (void)fflush(f);
    uint64_t sum = XXH3_64bits(text, bytes);
    (void)fwrite(&sum, sizeof sum, 1, f);
    bool ok = ferror(f) == 0;
    ok &= fclose(f) == 0;
    pst_rc rc = ok ? pst_file_replace(path, text, bytes)
                   : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the table of edge partitions");
    free(text);
    return rc;
}

/* ---- reading ---- */

struct input {
    const char *at, *end;
};

static bool take(struct input *in, void *out, size_t bytes)
{
    if ((size_t)(in->end - in->at) < bytes)
        return false;
    memcpy(out, in->at, bytes);
    in->at += bytes;
    return true;
}

static bool take_bucket(struct input *in, const struct spill *s, struct bucket *b)
{
    struct part part;
    if (!take(in, &part, sizeof part) || part.extents > (size_t)(in->end - in->at) / sizeof(off_t) ||
        part.bytes > part.extents * s->extent_bytes)
        return false;
    size_t room = 1;
    while (room < part.extents)
        room *= 2;
    b->extent = malloc(room * sizeof *b->extent);
    b->keys = part.keys;
    b->bytes = part.bytes;
    b->low_max = part.low_max;
    b->extents = part.extents;
    b->min = part.min;
    b->max = part.max;
    return b->extent != NULL && take(in, b->extent, part.extents * sizeof *b->extent);
}

/* Where the splitters begin: after the buckets. */
static bool skip_parts(struct input *in, uint64_t buckets)
{
    for (uint64_t i = 0; i < buckets; i++) {
        struct part part;
        if (!take(in, &part, sizeof part) || part.extents > (size_t)(in->end - in->at) / sizeof(off_t))
            return false;
        in->at += part.extents * sizeof(off_t);
    }
    return true;
}

static pst_rc restore(struct spill *s, struct partition *p, const struct head *h, struct input in)
{
    uint64_t *narrow = calloc(h->buckets, sizeof *narrow);
    wide_key *wide = calloc(h->buckets, sizeof *wide);
    struct input splitters = in;
    bool ok = narrow != NULL && wide != NULL && skip_parts(&splitters, h->buckets);
    if (ok && !h->finished)
        ok = take(&splitters, narrow, (h->buckets - 1) * sizeof *narrow) &&
             take(&splitters, wide, (h->buckets - 1) * sizeof *wide);
    pst_rc rc =
        ok ? pst_sorter_partition_restore(p, s, narrow, wide, (unsigned)h->buckets, h->pack_keys)
           : pst_fail(PST_E_FORMAT,
                      "this file of the interrupted import is truncated: import again without --resume");
    free(narrow);
    free(wide);
    for (unsigned i = 0; rc == PST_OK && i < p->buckets; i++)
        if (!take_bucket(&in, s, &p->bucket[i]))
            rc = pst_fail(PST_E_FORMAT, "this file of the interrupted import is truncated, or memory ran "
                                        "out: import again without --resume");
    return rc;
}

static pst_rc parse(struct spill *s, struct partition *p, struct index_part *of, const char *text,
                    size_t bytes)
{
    struct head h;
    uint64_t sum;
    struct input in = {text, text + bytes};
    if (bytes < sizeof h + sizeof sum)
        return pst_fail(PST_E_FORMAT,
                        "this file of the interrupted import is truncated: import again without --resume");
    memcpy(&sum, text + bytes - sizeof sum, sizeof sum);
    in.end -= sizeof sum;
    if (XXH3_64bits(text, bytes - sizeof sum) != sum || !take(&in, &h, sizeof h) ||
        memcmp(h.magic, magic, sizeof magic) != 0 || h.buckets == 0 || h.buckets > UINT32_MAX)
        return pst_fail(PST_E_FORMAT,
                        "this file of the interrupted import is damaged: import again without --resume");
    *of = (struct index_part){
        .finished = h.finished, .wide = h.wide, .pack_keys = (size_t)h.pack_keys, .keys = h.keys};
    s->block_bytes = (size_t)h.block_bytes;
    s->extent_bytes = EXTENT_BLOCKS * s->block_bytes;
    s->end = (off_t)h.end;
    return restore(s, p, &h, in);
}

pst_rc pst_sorter_index_read(struct spill *s, struct partition *p, struct index_part *of, const char *dir,
                             const char *name)
{
    char path[PST_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    *p = (struct partition){.spill = s};
    pst_rc rc = pst_file_read(path, INDEX_BYTES_MAX, &text, &bytes);
    if (rc == PST_OK)
        rc = pst_wrap(parse(s, p, of, text, bytes), "%s", path);
    free(text);
    return rc;
}

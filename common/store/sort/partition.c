/* partition.c: chooses splitters and divides keys among buckets. */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/sort/sorter_impl.h"

#define DIGIT_BITS 10     /* of a key in one pass: two times 1024 counts stay in the first cache */
#define SAMPLE_EXTENTS 64 /* that a sample of a bucket on disk is from */

#define KEY uint64_t
#define FN(name) name##_narrow
#include "common/store/sort/sorter_keys.h"
#undef KEY
#undef FN
#define KEY wide_key
#define FN(name) name##_wide
#include "common/store/sort/sorter_keys.h"
#include "common/util/memory.h"
#undef KEY
#undef FN

void *pst_sort_keys(void *a, void *b, size_t n, bool wide)
{
    return wide ? (void *)radix_wide(a, b, n) : (void *)radix_narrow(a, b, n);
}

size_t pst_sorter_unique_keys(void *keys, size_t n, bool wide)
{
    return wide ? unique_wide(keys, n) : unique_narrow(keys, n);
}

/* ---- splitters ---- */

static void find_splitters(struct partition *p, const void *sorted, size_t n, bool wide, unsigned buckets)
{
    unsigned m =
        wide ? split_wide(sorted, n, p->wide, buckets - 1) : split_narrow(sorted, n, p->narrow, buckets - 1);
    p->buckets = m + 1;
    if (!wide)
        make_cells_narrow(&p->narrow_cells, p->narrow, m);
    for (unsigned i = 0; i < m && !wide; i++)
        p->wide[i] = widen(p->narrow[i]);
    make_cells_wide(&p->wide_cells, p->wide, m);
}

/* Buckets without keys, and the memory that each ends in. */
static pst_rc partition_rooms(struct partition *p, unsigned buckets)
{
    p->bucket = calloc(buckets, sizeof *p->bucket);
    p->blocks = malloc(buckets * p->spill->block_bytes);
    if (p->bucket == NULL || p->blocks == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %u edge partitions", buckets);
    p->buckets = buckets;
    for (unsigned i = 0; i < buckets; i++) {
        p->bucket[i].block = p->blocks + i * p->spill->block_bytes;
        (void)pthread_mutex_init(&p->bucket[i].lock, NULL);
    }
    return PST_OK;
}

static pst_rc splitter_rooms(struct partition *p, unsigned buckets)
{
    p->narrow = calloc(buckets, sizeof *p->narrow);
    p->wide = malloc(buckets * sizeof *p->wide);
    return p->narrow != NULL && p->wide != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot partition the edges");
}

pst_rc pst_sorter_partition_init(struct partition *p, struct spill *s, void *sample, void *scratch, size_t n,
                                 bool wide, unsigned buckets, size_t pack_keys)
{
    assert(n > 0 && pack_keys > 0 && pack_keys <= PACK_KEYS_MAX);
    *p = (struct partition){.spill = s, .pack_keys = pack_keys};
    pst_rc rc = splitter_rooms(p, buckets);
    if (rc != PST_OK)
        return rc;
    find_splitters(p, pst_sort_keys(sample, scratch, n, wide), n, wide, buckets);
    return partition_rooms(p, p->buckets);
}

pst_rc pst_sorter_partition_restore(struct partition *p, struct spill *s, const uint64_t *narrow,
                                    const wide_key *wide, unsigned buckets, size_t pack_keys)
{
    *p = (struct partition){.spill = s, .pack_keys = pack_keys};
    pst_rc rc = splitter_rooms(p, buckets);
    if (rc != PST_OK)
        return rc;
    memcpy(p->wide, wide, (buckets - 1) * sizeof *wide);
    make_cells_wide(&p->wide_cells, p->wide, buckets - 1);
    memcpy(p->narrow, narrow, (buckets - 1) * sizeof *narrow);
    make_cells_narrow(&p->narrow_cells, p->narrow, buckets - 1);
    return partition_rooms(p, buckets);
}

pst_rc pst_sorter_partition_flush(const struct partition *p)
{
    pst_rc rc = PST_OK;
    for (unsigned i = 0; rc == PST_OK && i < p->buckets; i++)
        rc = pst_sorter_bucket_flush(p->spill, &p->bucket[i]);
    return rc;
}

void pst_sorter_partition_release(struct partition *p, bool buckets_too)
{
    for (unsigned i = 0; p->bucket != NULL && buckets_too && i < p->buckets; i++)
        pst_sorter_bucket_release(&p->bucket[i]);
    if (buckets_too) {
        free(p->bucket);
        p->bucket = NULL;
    }
    free(p->blocks);
    free(p->narrow);
    free(p->wide);
    p->blocks = NULL;
    p->narrow = NULL;
    p->wide = NULL;
}

/* ---- scattering ---- */

pst_rc pst_sorter_scatter_init(struct scatter *s, struct partition *to)
{
    *s = (struct scatter){.to = to};
    s->keys = pst_hugepage_alloc(to->buckets * to->pack_keys * sizeof(wide_key));
    s->count = calloc(to->buckets, sizeof *s->count);
    return s->keys != NULL && s->count != NULL
               ? PST_OK
               : pst_fail(PST_E_NOMEM, "out of memory: cannot partition the edges");
}

pst_rc pst_sorter_scatter_flush(struct scatter *s)
{
    const struct partition *p = s->to;
    pst_rc rc = PST_OK;
    for (unsigned b = 0; rc == PST_OK && b < p->buckets; b++) {
        size_t n = s->count[b];
        s->count[b] = 0;
        if (n > 0)
            rc = pst_sorter_bucket_add(p->spill, &p->bucket[b],
                                       (const char *)s->keys + b * p->pack_keys * key_bytes(s->wide), n,
                                       s->wide);
    }
    return rc;
}

pst_rc pst_sorter_scatter_add(struct scatter *s, const void *keys, size_t n, bool wide)
{
    assert(wide || !s->wide); /* narrow keys never come after wide ones */
    if (wide && !s->wide) {
        pst_rc rc = pst_sorter_scatter_flush(s);
        if (rc != PST_OK)
            return rc;
        s->wide = true;
    }
    return wide ? scatter_wide(s, keys, n, s->to->wide, &s->to->wide_cells)
                : scatter_narrow(s, keys, n, s->to->narrow, &s->to->narrow_cells);
}

void pst_sorter_scatter_release(struct scatter *s)
{
    free(s->keys);
    free(s->count);
}

/* ---- a bucket that does not fit ---- */

struct again {
    struct bucket_reader reader;
    void *sample, *scratch, *keys;
    size_t room, n;
};

/* Keys of packs from all over the bucket: extents at equal distances, as many of each. */
static pst_rc take_sample(struct again *a, bool wide)
{
    const struct bucket *b = a->reader.bucket;
    size_t item = key_bytes(wide), extents = b->extents < SAMPLE_EXTENTS ? b->extents : SAMPLE_EXTENTS;
    for (size_t e = 0; e < extents; e++) {
        a->reader.extent = e * b->extents / extents;
        a->reader.at = a->reader.end = 0;
        for (size_t want = (e + 1) * a->room / extents; a->n < want;) {
            size_t n;
            pst_rc rc = pst_sorter_bucket_next(&a->reader, a->keys, wide, 0, 32, &n);
            if (rc != PST_OK)
                return rc;
            if (n == 0)
                break;
            n = n < want - a->n ? n : want - a->n;
            memcpy((char *)a->sample + a->n * item, a->keys, n * item);
            a->n += n;
        }
    }
    return PST_OK;
}

static pst_rc scatter_all(struct again *a, struct partition *p, bool wide)
{
    struct scatter s;
    pst_rc rc = pst_sorter_scatter_init(&s, p);
    a->reader.extent = a->reader.at = a->reader.end = 0;
    for (size_t n = 1; rc == PST_OK && n > 0;) {
        rc = pst_sorter_bucket_next(&a->reader, a->keys, wide, 0, 32, &n);
        if (rc == PST_OK && n > 0)
            rc = pst_sorter_scatter_add(&s, a->keys, n, wide);
    }
    if (rc == PST_OK)
        rc = pst_sorter_scatter_flush(&s);
    if (rc == PST_OK)
        rc = pst_sorter_partition_flush(p);
    pst_sorter_scatter_release(&s);
    return rc;
}

pst_rc pst_sorter_partition_again(struct partition *p, struct spill *s, struct bucket *b, bool wide,
                                  unsigned buckets, size_t pack_keys)
{
    *p = (struct partition){.spill = s};
    size_t item = key_bytes(wide), room = SAMPLE_PER_BUCKET * buckets;
    struct again a = {.room = room,
                      .reader = {.spill = s, .bucket = b, .buffer = malloc(s->extent_bytes + 8)},
                      .sample = malloc(room * item),
                      .scratch = malloc(room * item),
                      .keys = malloc(PACK_KEYS_MAX * item)};
    pst_rc rc = PST_OK;
    if (a.reader.buffer == NULL || a.sample == NULL || a.scratch == NULL || a.keys == NULL)
        rc = pst_fail(PST_E_NOMEM, "out of memory: cannot partition the edges again");
    if (rc == PST_OK)
        rc = take_sample(&a, wide);
    if (rc == PST_OK)
        rc = pst_sorter_partition_init(p, s, a.sample, a.scratch, a.n, wide, buckets, pack_keys);
    if (rc == PST_OK)
        rc = scatter_all(&a, p, wide);
    free(a.reader.buffer);
    free(a.sample);
    free(a.scratch);
    free(a.keys);
    return rc;
}

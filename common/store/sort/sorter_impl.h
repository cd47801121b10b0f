/* sorter_impl.h: the state of a sorter, shared by its files. Owner: sorter.c. Threads: see each part. */
#ifndef PST_SORTER_IMPL_H
#define PST_SORTER_IMPL_H

#include <pthread.h>
#include <sys/types.h>

#include "common/store/sort/sorter.h"

#define SORT_WORKERS_MAX 15
#define BUCKETS_MAX 512   /* more streams than this and a processor's TLB no longer holds them */
#define BUCKETS_MIN 16    /* with fewer, a bucket is hardly smaller than the whole */
#define PACK_KEYS_MAX 256 /* keys of one bucket that go to it together */
#define CELLS 8192        /* of the range of keys, for the search for a bucket: they stay in the cache */
#define SAMPLE_PER_BUCKET 64
#define EXTENT_BLOCKS 16 /* blocks of one bucket that are side by side on disk: read at once */
#define PACK_BYTES_MAX (sizeof(struct pack) + PACK_KEYS_MAX * sizeof(wide_key) + 8)

/* A key: target, source, tag in 48, 48 and 32 bits; a narrow one: target and source in 32 bits each. */
typedef unsigned __int128 wide_key;

static inline size_t key_bytes(bool wide)
{
    return wide ? sizeof(wide_key) : sizeof(uint64_t);
}

static inline wide_key widen(uint64_t key)
{
    return (wide_key)(key >> 32) << 80 | (wide_key)(key & UINT32_MAX) << 32;
}

/* Begins what a bucket's stream consists of: keys of little range, each in as few bytes as that needs. */
struct pack {
    uint32_t check; /* XXH3 of the rest */
    uint16_t keys;  /* 0: nothing more in this extent */
    uint8_t wide, item_bytes;
    uint32_t low_bits, high, low; /* of narrow keys: the least of each, taken off */
};

/* Where the streams are: one file, given out by extents. Threads: end is atomic. */
struct spill {
    int fd;
    off_t end;
    size_t block_bytes, extent_bytes;
    char path[4096]; /* "": it has no name */
};

/* Keys from one value up to another, in any order. Threads: under its lock while there are several. */
struct bucket {
    uint64_t keys, bytes; /* bytes: of its stream */
    off_t *extent;
    size_t extents;
    wide_key min, max;
    uint64_t low_max;
    unsigned char *block; /* what the stream ends with and is not on disk yet */
    size_t fill;
    pthread_mutex_t lock;
};

/* For a key's upper bits, the first splitter that it may be compared with. */
struct cells {
    unsigned shift;
    uint16_t first[CELLS + 1];
};

/* Splits keys into buckets: bucket i has those from splitter i - 1 up to splitter i. */
struct partition {
    struct spill *spill;
    struct bucket *bucket;
    unsigned buckets;
    uint64_t *narrow; /* splitters, one fewer than buckets; all 0 when they come from wide keys */
    wide_key *wide;
    struct cells narrow_cells, wide_cells;
    unsigned char *blocks;
    size_t pack_keys;
};

/* One thread's keys on their way to the buckets. */
struct scatter {
    struct partition *to;
    bool wide;
    void *keys; /* pack_keys for each bucket */
    uint16_t *count;
};

/* Gives a bucket's packs one by one. */
struct bucket_reader {
    const struct spill *spill;
    const struct bucket *bucket;
    unsigned char *buffer; /* extent_bytes and 8 */
    size_t extent, at, end;
};

/* ---- spill.c ---- */
PST_MUST_USE pst_rc pst_sorter_spill_make(struct spill *s, const char *dir, bool named);
PST_MUST_USE pst_rc pst_sorter_spill_write(const struct spill *s, const void *from, size_t bytes, off_t at);
/* Appends n <= PACK_KEYS_MAX keys. Takes the bucket's lock. */
PST_MUST_USE pst_rc pst_sorter_bucket_add(struct spill *s, struct bucket *b, const void *keys, size_t n,
                                          bool wide);
/* Writes what is not on disk yet; the bucket can still be added to. */
PST_MUST_USE pst_rc pst_sorter_bucket_flush(const struct spill *s, const struct bucket *b);
void pst_sorter_bucket_prefetch(const struct spill *s, const struct bucket *b);
/* Up to PACK_KEYS_MAX keys to out; 0 after the last. Narrow ones as (target - base) << low_bits | source;
 * wide_out: as wide keys, base and low_bits unused. Fails: PST_E_IO. */
PST_MUST_USE pst_rc pst_sorter_bucket_next(struct bucket_reader *r, void *out, bool wide_out, uint64_t base,
                                           unsigned low_bits, size_t *n);
/* Reads what its stream ends with back to its block, after it was restored. */
PST_MUST_USE pst_rc pst_sorter_bucket_reload(const struct spill *s, struct bucket *b);
void pst_sorter_bucket_release(struct bucket *b);

/* ---- partition.c ---- */
/* Splitters from a sample, which is sorted in place with as much scratch. */
PST_MUST_USE pst_rc pst_sorter_partition_init(struct partition *p, struct spill *s, void *sample,
                                              void *scratch, size_t n, bool wide, unsigned buckets,
                                              size_t pack_keys);
/* One with splitters that are known, and buckets that are empty. */
PST_MUST_USE pst_rc pst_sorter_partition_restore(struct partition *p, struct spill *s, const uint64_t *narrow,
                                                 const wide_key *wide, unsigned buckets, size_t pack_keys);
PST_MUST_USE pst_rc pst_sorter_partition_flush(const struct partition *p); /* all blocks to disk */
void pst_sorter_partition_release(struct partition *p, bool buckets_too);
PST_MUST_USE pst_rc pst_sorter_scatter_init(struct scatter *s, struct partition *to);
PST_MUST_USE pst_rc pst_sorter_scatter_add(struct scatter *s, const void *keys, size_t n, bool wide);
PST_MUST_USE pst_rc pst_sorter_scatter_flush(struct scatter *s);
void pst_sorter_scatter_release(struct scatter *s);
/* Splits one bucket into many, which the caller then owns in p. */
PST_MUST_USE pst_rc pst_sorter_partition_again(struct partition *p, struct spill *s, struct bucket *b,
                                               bool wide, unsigned buckets, size_t pack_keys);

/* Sorts n keys of a with scratch b; the result is in a or b. */
void *pst_sort_keys(void *a, void *b, size_t n, bool wide);
size_t pst_sorter_unique_keys(void *keys, size_t n, bool wide);

/* ---- index.c: what is where, in a file ---- */
struct index_part {
    bool finished, wide;
    size_t pack_keys;
    uint64_t keys; /* that were added */
    struct bucket **bucket;
    size_t buckets;
    const struct partition *splitters; /* NULL once finished */
};
PST_MUST_USE pst_rc pst_sorter_index_write(const struct spill *s, const struct index_part *of,
                                           const char *dir, const char *name);
/* Fills the spill's sizes, p (its buckets, and splitters unless finished) and of. Release p, also when it
 * failed. */
PST_MUST_USE pst_rc pst_sorter_index_read(struct spill *s, struct partition *p, struct index_part *of,
                                          const char *dir, const char *name);

/* ---- merge.c: bucket by bucket in memory ---- */
struct giver;
struct give_spec {
    struct spill *spill;
    struct bucket **bucket;
    size_t buckets, first;
    bool wide, dedupe;
    int workers;
    uint64_t memory_bytes;
};
size_t pst_sorter_giver_keys_max(const struct give_spec *spec); /* of a bucket that fits */
PST_MUST_USE pst_rc pst_sorter_giver_new(struct giver **out, const struct give_spec *spec);
PST_MUST_USE pst_rc pst_sorter_giver_next(struct giver *g, int64_t *high, int64_t *low, int32_t *tag,
                                          int64_t *n);
size_t pst_sorter_giver_done(const struct giver *g);
void pst_sorter_giver_free(struct giver *g);

/* Keys as the caller of a sorter knows them; tag may be NULL. */
void pst_sorter_keys_out(const void *keys, size_t n, bool wide, uint64_t base, unsigned low_bits,
                         int64_t *high, int64_t *low, int32_t *tag);

#endif

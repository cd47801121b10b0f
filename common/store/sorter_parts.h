/* sorter_parts.h: the state of a sorter, shared by its two files. Owner: sorter.c. Threads: see lock. */
#ifndef PST_STORE_SORTER_PARTS_H
#define PST_STORE_SORTER_PARTS_H

#include <pthread.h>
#include <sys/types.h>

#include "sorter.h"

#define SORT_WORKERS_MAX 3 /* beyond, the one thread that adds is what bounds */
#define RUNS_MAX (1 << 20) /* a bound for the table of runs: with the least memory still 10^11 keys */

typedef unsigned __int128 wide_key;

struct run {
    off_t at;
    uint64_t keys;
    bool wide;
};

/* Where the runs are: one file without a name. */
struct spill {
    int fd;
    off_t end;
    struct run *run;
    size_t runs, room;
    int64_t ever;
};

struct cursor {
    struct run run;
    uint64_t taken; /* keys read of it */
    void *keys;
    size_t at, end; /* of keys that are in memory */
};

struct merge {
    const struct spill *spill;
    struct cursor *cursor;
    unsigned inputs, width; /* width: the power of two that holds them */
    unsigned winner, *loser;
    void *head; /* width keys: the first of each input */
    void *memory;
    size_t chunk; /* keys of one input in memory */
    bool wide, dedupe, any;
    wide_key last;
};

/* sorter_merge.c */
PST_MUST_USE pst_rc pst_spill_write(struct spill *s, off_t at, const void *keys, size_t bytes);
PST_MUST_USE pst_rc pst_spill_add(struct spill *s, struct run run);
/* Merges runs first .. first+inputs-1 within memory_bytes. Release what init filled, also when it failed. */
PST_MUST_USE pst_rc pst_merge_init(struct merge *m, const struct spill *s, size_t first, unsigned inputs,
                                   bool wide, bool dedupe, uint64_t memory_bytes);
PST_MUST_USE pst_rc pst_merge_fill(struct merge *m, void *out, size_t room, size_t *got);
void pst_merge_release(struct merge *m);
/* Merges runs into longer ones until there are at most fan_in. */
PST_MUST_USE pst_rc pst_spill_shrink(struct spill *s, size_t fan_in, bool dedupe, uint64_t memory_bytes);

/* Sorts n keys of a with scratch b, drops equal ones when asked; the result, *n keys, is in a or b. */
void *pst_sort_keys(void *a, void *b, size_t *n, bool wide, bool dedupe);

static inline size_t key_bytes(bool wide)
{
    return wide ? sizeof(wide_key) : sizeof(uint64_t);
}

#endif

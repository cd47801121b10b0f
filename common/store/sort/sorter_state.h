/* sorter_state.h: the state of a sorter, shared by sorter.c and finish.c. Owner: sorter.c. Threads: stated at
 * each member. */
#ifndef PST_SORTER_STATE_H
#define PST_SORTER_STATE_H

#include "common/store/sort/sorter_impl.h"

enum slice_state { FREE, FULL, BUSY };

/* A piece of the arena. Until `fresh` slices are full they are filled in order, and all keys are in memory;
 * then a few of them go round between the caller and the workers. */
struct slice {
    size_t n;
    bool wide;
    enum slice_state state;
};

struct pst_sorter {
    struct pst_sorter_spec spec;
    bool wide, finished;
    int workers;
    char *arena;
    size_t slice_bytes, slices;
    size_t fresh, round; /* slices that are filled before keys are written; those that go round then */
    uint64_t filling;    /* counts the slices that were begun: which one is filled now */
    struct slice *slice;
    int64_t *expected[2]; /* high and low of the sample that the caller gave; NULL: it gave none */
    size_t nexpected;
    void *scratch, *sorted; /* when all is in memory */
    size_t n, given;
    struct spill spill;
    struct partition parts;
    struct scatter scatter[SORT_WORKERS_MAX + 1];
    struct bucket **order;
    size_t buckets;
    struct partition *again; /* those that were parted again */
    size_t agains;
    struct giver *giver;
    pthread_t thread[SORT_WORKERS_MAX];
    int started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* under the lock while threads run */
    uint64_t taking; /* counts the slices that were taken: in the order in which they were filled */
    int at_work;
    bool stop;
    pst_rc failed;
    char error[1024];
};

static inline size_t slice_at(const struct pst_sorter *s, uint64_t count)
{
    return count < s->fresh ? (size_t)count : (size_t)((count - s->fresh) % s->round);
}

static inline bool spilling(const struct pst_sorter *s)
{
    return s->spill.fd >= 0;
}

/* sorter.c */
PST_MUST_USE pst_rc pst_sorter_settle(struct pst_sorter *s); /* all that was added is on the disk */
PST_MUST_USE pst_rc pst_sorter_start_scattering(struct pst_sorter *s);
void pst_sorter_end_workers(struct pst_sorter *s);
void pst_sorter_free_parting(struct pst_sorter *s);
unsigned pst_sorter_buckets(const struct pst_sorter *s); /* how many its memory allows */
size_t pst_sorter_pack_keys(const struct pst_sorter *s);

#endif

/* policy_impl.h: what the policies share: the lines, and a hash table of the vertices that are cached or in
 * the window. Owner: policy.c. Threads: one. */
#ifndef PST_POLICY_IMPL_H
#define PST_POLICY_IMPL_H

#include "stages/lib/policy/policy.h"

/* What is known of a vertex. */
struct pst_policy_entry {
    int64_t vertex; /* -1: the place is free */
    uint64_t mask;  /* bit t mod 64: batch t of the window uses it. S3FIFO: its turn in the ghost queue, or 0.
                       BELADY: 1 + its last place in `next`, or 0 */
    int32_t line;   /* -1: it is not cached */
};

struct pst_policy;

/* What a policy does. seq: the batch's number among those that entered; i: the vertex's place in it. */
struct pst_policy_ops {
    /* NULL: nothing */
    void (*enter)(struct pst_policy *p, struct pst_policy_entry *e, uint64_t seq, int64_t i);
    void (*decide)(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq, int32_t *hit,
                   int32_t *keep);
};

/* How soon a line's row is used, and how hot it is. */
struct pst_policy_rank {
    uint64_t next;
    float hotness;
};

/* A queue of lines, newest first. */
struct pst_policy_queue {
    int32_t newest, oldest; /* -1: none */
    int64_t n;
};

struct pst_policy {
    struct pst_policy_config config;
    const struct pst_policy_ops *ops;
    struct pst_policy_entry *table; /* open addressing; `places` is a power of two */
    uint64_t places;
    int64_t *vertex; /* of each line */
    int64_t used;    /* lines; they are taken in order and never become free again */
    uint64_t entered, decided, bytes, evictions;
    /* window, random: the lines that no batch of the window uses, and where each is among them (-1: not) */
    int32_t *safe, *safe_at;
    int64_t nsafe;
    /* lookahead, Belady: a heap of lines, the one to lose first on top */
    int32_t *heap, *heap_at;
    struct pst_policy_rank *rank; /* of each line */
    uint64_t
        *next; /* Belady with super-batches: a ring of batches, batch_max each: when vertices are used next */
    /* sieve, s3fifo, lru */
    int32_t *newer, *older; /* neighbours of each line in its queue; -1: none */
    uint8_t *freq;          /* uses since it came, up to 3 */
    struct pst_policy_queue small, main;
    int32_t hand;      /* sieve: the next to look at; -1: the oldest */
    int64_t *ghost;    /* s3fifo: a ring of vertices that left the small queue */
    uint64_t ghosts;   /* how many have entered it */
    int64_t ghost_max; /* how many it remembers */
};

/* NULL: nothing is known of the vertex. */
struct pst_policy_entry *pst_policy_entry_find(const struct pst_policy *p, int64_t vertex);
/* Makes an entry if there is none. */
struct pst_policy_entry *pst_policy_entry_get(struct pst_policy *p, int64_t vertex);
/* Removes the entry if the vertex is neither cached nor in the window. Other entries may move. */
void pst_policy_entry_tidy(struct pst_policy *p, int64_t vertex);

/* Gives a line to a vertex, whose entry may be new. The line's former vertex, if it has one, loses it. */
void pst_policy_take_line(struct pst_policy *p, int32_t line, int64_t vertex);

/* Clears the batch's bit of each vertex, and writes its line or -1 to hit. */
void pst_policy_look_up(struct pst_policy *p, const struct pst_policy_batch *b, uint64_t seq, int32_t *hit);

/* Writes to keep the line that each row of the batch has in the end, if it was read. A row that was kept
 * first can lose its line to a later one of the same batch. */
void pst_policy_note_kept(const struct pst_policy *p, const struct pst_policy_batch *b, const int32_t *hit,
                          int32_t *keep);

static inline uint64_t pst_policy_bit(uint64_t seq)
{
    return UINT64_C(1) << (seq % 64);
}

extern const struct pst_policy_ops pst_policy_window_ops, pst_policy_sieve_ops, pst_policy_s3fifo_ops,
    pst_policy_static_ops, pst_policy_lookahead_ops, pst_policy_lru_ops, pst_policy_belady_ops,
    pst_policy_super_batch_ops;

#endif

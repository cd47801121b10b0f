/* collective.h: processes, or threads, that compute together: the replicas of a stage. A table of functions
 * says how they reach each other. shared.h has the implementation in shared memory.
 *
 * All members of a collective must call the same functions in the same order. A member that waits for another
 * returns one of these:
 *
 *     PST_E_PEER         the other member's process has died; the message names it
 *     PST_E_TIMEOUT      the deadline has passed; the message names the other member
 *     PST_E_INTERRUPTED  the other member has left (pst_collective_leave), or the run is ending
 *
 * Owner: an implementation fills what its caller owns. Threads: a member belongs to one thread. */
#ifndef PST_COLLECTIVE_H
#define PST_COLLECTIVE_H

#include "common/stage.h"

PST_BEGIN_DECLS

/* What a member gives to the members of the same number on all ranks (machines), and gets from them. */
struct pst_collective_parcels {
    uint32_t unit;        /* bytes of an item */
    const uint64_t *give; /* items for each rank; none for the own rank */
    const void *given;    /* these items, by rank */
    uint64_t *take;       /* gets the items from each rank */
    /* Called once, when `take` is known: returns memory for all items, which come by rank. NULL: there is
     * none. */
    void *(*room)(void *to, uint64_t items);
    void *to;
};

struct pst_collective_table {
    const char *name;
    pst_rc (*barrier)(struct pst_collective *c);
    pst_rc (*exchange)(struct pst_collective *c, int peer, const void *mine, void *theirs, uint64_t bytes);
    /* NULL: it has none */
    pst_rc (*all_to_all)(struct pst_collective *c, const struct pst_collective_parcels *parcels);
    void (*leave)(struct pst_collective *c);
    void (*close)(struct pst_collective *c);
};

struct pst_collective {
    const struct pst_collective_table *by;
    int rank, members;
    double deadline_s; /* the longest wait for another member, in seconds */
    int near;          /* so many members, of which this is one, share memory: those whose ranks differ only
                          in the remainder of the division by it */
};

/* Returns when every member has called it. */
static inline PST_MUST_USE pst_rc pst_collective_barrier(struct pst_collective *c)
{
    return c->by->barrier(c);
}

/* Gives `bytes` bytes of `mine` to a member and gets as many from it, which must call this function at the
 * same time. The two arrays must not overlap. */
static inline PST_MUST_USE pst_rc pst_collective_exchange(struct pst_collective *c, int peer,
                                                          const void *mine, void *theirs, uint64_t bytes)
{
    return c->by->exchange(c, peer, mine, theirs, bytes);
}

/* The members with the same number on all ranks give one another items: MPI_Alltoallv. All of them must call
 * this function. PST_E_UNSUPPORTED: there is one rank. PST_E_LIMIT: 2^31 items or more. PST_E_NOMEM: there
 * was no room; the member must then leave. Other errors are those of a wait. */
static inline PST_MUST_USE pst_rc pst_collective_all_to_all(struct pst_collective *c,
                                                            const struct pst_collective_parcels *parcels)
{
    return c->by->all_to_all != NULL
               ? c->by->all_to_all(c, parcels)
               : pst_fail(PST_E_UNSUPPORTED,
                          "members on one machine have no other ranks to exchange items with");
}

/* This member takes no further part. What it has given before can still be taken. */
static inline void pst_collective_leave(struct pst_collective *c)
{
    c->by->leave(c);
}

/* Leaves, and releases what the member owns. Accepts NULL. */
static inline void pst_collective_close(struct pst_collective *c)
{
    if (c)
        c->by->close(c);
}

/* The functions below need a number of members that is a power of two. In round l, members whose ranks
 * differ only in bit l exchange what they have. So log2(members) exchanges do (recursive doubling). */

/* Adds up the `n` elements of `sum` over all members. Every member gets the same bits: the additions form one
 * binary tree over the ranks, in which the two halves of each aligned range of ranks are added. theirs: room
 * for n elements. Of members that share memory, only the first exchanges with members far away, and tells the
 * others. */
PST_API PST_MUST_USE pst_rc pst_collective_sum(struct pst_collective *c, float *sum, float *theirs,
                                               int64_t n);

/* all: members x bytes. Member r has filled the r-th part; then all members have all parts. */
PST_API PST_MUST_USE pst_rc pst_collective_gather(struct pst_collective *c, void *all, uint64_t bytes);

PST_END_DECLS
#endif

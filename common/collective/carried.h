/* carried.h: a collective whose members are on several machines. A rank is the part of a run that one machine
 * (one supervisor) has. All ranks have the same number of members; member m of rank r is number r x members +
 * m of the whole collective.
 *
 * Members of one rank share memory (shared.h). For each of its members, a rank also has a carrier there: a
 * thread that gives to other ranks what the member gives it, and gives the member what comes from there. So a
 * member needs no network. The carriers of a rank are threads of one process, tools/penstock-ranks.c, which
 * uses MPI.
 *
 * Owner: the memory is the caller's, as in shared.h. */
#ifndef PST_COLLECTIVE_CARRIED_H
#define PST_COLLECTIVE_CARRIED_H

#include "common/collective/shared.h"

PST_BEGIN_DECLS

/* What a member says to its carrier before the data of an exchange, which follow in pieces of at most
 * PST_COLLECTIVE_BOX bytes. The carrier answers each piece with the peer's. */
struct pst_collective_order {
    int32_t peer;  /* of the whole collective; PST_COLLECTIVE_ALL */
    uint32_t unit; /* of PST_COLLECTIVE_ALL */
    uint64_t bytes;
};

/* The order of an all_to_all. The member then gives the numbers of items for each rank (uint64_t), and
 * `bytes` bytes of items in pieces. The carrier gives the numbers of items from each rank, and these items in
 * pieces. */
#define PST_COLLECTIVE_ALL (-1)

struct pst_collective_ranks_options {
    void *memory;                 /* pst_collective_ranks_bytes, aligned to a page */
    int rank, ranks;              /* a power of two of ranks */
    int member, members;          /* of this rank; all ranks together have at most PST_REPLICAS_MAX */
    const char *const *names;     /* of the members of this rank, and of their carriers, for messages */
    double deadline_s;            /* the longest wait for another member, in seconds */
    const _Atomic uint32_t *stop; /* if it is not 0, waits end with PST_E_INTERRUPTED; NULL: none */
};

/* members: of one rank. */
PST_API uint64_t pst_collective_ranks_bytes(int members);

/* Opens a member. Errors are those of pst_collective_shared_open. */
PST_API PST_MUST_USE pst_rc pst_collective_ranks_open(struct pst_collective **out,
                                                      const struct pst_collective_ranks_options *options);

/* Opens a member's carrier: a member of the rank's shared memory (shared.h), in which the member that it
 * carries for has the number options->member. */
PST_API PST_MUST_USE pst_rc pst_collective_ranks_carry(struct pst_collective **out,
                                                       const struct pst_collective_ranks_options *options);

PST_END_DECLS
#endif

/* carried.c: members of a collective that spans several machines: exchanges with members of this machine go
 * through shared memory, those with others through the member's carrier. */
#include "common/collective/carried.h"

#include <stdlib.h>

#include "common/error.h"

struct ranks {
    struct pst_collective base;
    struct pst_collective *local; /* members of this rank, then their carriers */
    int first, members;           /* of this rank */
};

static struct ranks *ranks_of(struct pst_collective *c)
{
    return (struct ranks *)(void *)c; /* its first member */
}

static pst_rc exchange(struct pst_collective *c, int peer, const void *mine, void *theirs, uint64_t bytes)
{
    struct ranks *r = ranks_of(c);
    assert(peer >= 0 && peer < c->members && peer != c->rank);
    if (peer >= r->first && peer < r->first + r->members)
        return pst_collective_exchange(r->local, peer - r->first, mine, theirs, bytes);
    const int carrier = r->members + c->rank - r->first;
    const struct pst_collective_order order = {.peer = peer, .bytes = bytes};
    const pst_rc rc = pst_collective_shared_give(r->local, carrier, &order, sizeof order);
    return rc == PST_OK ? pst_collective_exchange(r->local, carrier, mine, theirs, bytes) : rc;
}

/* Each exchange says "I am here" for all members that this one has heard of. */
static pst_rc barrier(struct pst_collective *c)
{
    const char mine = 0;
    char theirs;
    pst_rc rc = PST_OK;
    for (int apart = 1; apart < c->members && rc == PST_OK; apart *= 2)
        rc = exchange(c, c->rank ^ apart, &mine, &theirs, sizeof mine);
    return rc;
}

static void leave(struct pst_collective *c)
{
    pst_collective_leave(ranks_of(c)->local);
}

static void close_member(struct pst_collective *c)
{
    pst_collective_close(ranks_of(c)->local);
    free(ranks_of(c));
}

static const struct pst_collective_table table = {"ranks", barrier, exchange, leave, close_member};

uint64_t pst_collective_ranks_bytes(int members)
{
    return pst_collective_shared_bytes(2 * members);
}

static pst_rc open_local(struct pst_collective **out, const struct pst_collective_ranks_options *options,
                         int number)
{
    return pst_collective_shared_open(
        out, &(struct pst_collective_shared_options){.memory = options->memory,
                                                     .rank = number,
                                                     .members = 2 * options->members,
                                                     .names = options->names,
                                                     .deadline_s = options->deadline_s,
                                                     .stop = options->stop});
}

pst_rc pst_collective_ranks_open(struct pst_collective **out,
                                 const struct pst_collective_ranks_options *options)
{
    *out = NULL;
    struct ranks *r = calloc(1, sizeof *r);
    if (!r)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot connect the replicas of a stage");
    r->first = options->rank * options->members;
    r->members = options->members;
    r->base = (struct pst_collective){.by = &table,
                                      .rank = r->first + options->member,
                                      .members = options->ranks * options->members,
                                      .deadline_s = options->deadline_s,
                                      .near = options->members};
    const pst_rc rc = open_local(&r->local, options, options->member);
    if (rc == PST_OK)
        *out = &r->base;
    else
        free(r);
    return rc;
}

pst_rc pst_collective_ranks_carry(struct pst_collective **out,
                                  const struct pst_collective_ranks_options *options)
{
    return open_local(out, options, options->members + options->member);
}

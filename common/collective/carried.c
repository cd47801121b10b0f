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

/* In pieces that fit a box. */
static pst_rc give_all(struct ranks *r, int carrier, const char *from, uint64_t bytes)
{
    pst_rc rc = PST_OK;
    for (uint64_t at = 0; at < bytes && rc == PST_OK; at += PST_COLLECTIVE_BOX)
        rc = pst_collective_shared_give(r->local, carrier, from + at,
                                        bytes - at < PST_COLLECTIVE_BOX ? bytes - at : PST_COLLECTIVE_BOX);
    return rc;
}

static pst_rc take_all(struct ranks *r, int carrier, char *to, uint64_t bytes)
{
    pst_rc rc = PST_OK;
    for (uint64_t at = 0; at < bytes && rc == PST_OK; at += PST_COLLECTIVE_BOX)
        rc = pst_collective_shared_take(r->local, carrier, to + at,
                                        bytes - at < PST_COLLECTIVE_BOX ? bytes - at : PST_COLLECTIVE_BOX);
    return rc;
}

static uint64_t sum_of(const uint64_t *items, int ranks)
{
    uint64_t sum = 0;
    for (int k = 0; k < ranks; k++)
        sum += items[k];
    return sum;
}

static pst_rc all_to_all(struct pst_collective *c, const struct pst_collective_parcels *p)
{
    struct ranks *r = ranks_of(c);
    const int carrier = r->members + c->rank - r->first, ranks = c->members / r->members;
    const uint64_t items = (uint64_t)ranks * sizeof *p->give;
    const struct pst_collective_order order = {
        .peer = PST_COLLECTIVE_ALL, .unit = p->unit, .bytes = sum_of(p->give, ranks) * p->unit};
    assert(p->unit > 0 && p->give[r->first / r->members] == 0);
    pst_rc rc = pst_collective_shared_give(r->local, carrier, &order, sizeof order);
    if (rc == PST_OK)
        rc = pst_collective_shared_give(r->local, carrier, p->give, items);
    if (rc == PST_OK)
        rc = give_all(r, carrier, p->given, order.bytes);
    if (rc == PST_OK)
        rc = pst_collective_shared_take(r->local, carrier, p->take, items);
    if (rc != PST_OK)
        return rc;
    const uint64_t taken = sum_of(p->take, ranks);
    void *to = p->room(p->to, taken);
    if (to == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot take %llu items of %u bytes from other ranks",
                        (unsigned long long)taken, p->unit);
    return take_all(r, carrier, to, taken * p->unit);
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

static const struct pst_collective_table table = {"ranks",    barrier, exchange,
                                                  all_to_all, leave,   close_member};

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
